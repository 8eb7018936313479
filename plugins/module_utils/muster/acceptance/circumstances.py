"""What an acceptance test was measured on, and what of it is no longer as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.words import few
from .metrics import rows, word

if TYPE_CHECKING:
    from collections.abc import Mapping

# Of what health sees of a node, beside what the ranks say themselves.
TRAITS = ("os", "kernel", "driver", "vbios", "hca_firmware")


def about(smoke: Mapping[str, Any], looks: Mapping[str, Any]) -> dict[str, dict[str, dict[str, str]]]:
    """Versions by node, and the GPU of each rank. looks: what health saw in the same run, where it looked."""
    versions: dict[str, dict[str, str]] = {}
    gpus: dict[str, dict[str, str]] = {}
    for rank in rows(smoke, "ranks"):
        node, gpu = word(rank.get("node")), word(rank.get("gpu_uuid"))
        look = _inner(looks, node)
        traits = _inner(look, "traits")
        said = {**{name: traits.get(name) for name in TRAITS}, **_inner(_facts(rank), "versions")}
        known = {word(name): word(value) for name, value in sorted(said.items(), key=str) if word(value)}
        if known:
            versions.setdefault(node, {}).update(known)
        if gpu:
            serials = {
                word(one.get("uuid")): word(one.get("serial")) for one in rows(_inner(look, "facts", "gpu"), "gpus")
            }
            serial = {"serial": serials[gpu]} if serials.get(gpu) else {}
            gpus[f"{node}, local rank {word(rank.get('local_rank'))}"] = {"uuid": gpu, **serial}
    return {"versions": versions, "gpus": gpus}


def since(state: Mapping[str, Any], now: Mapping[str, dict[str, dict[str, str]]]) -> str:
    """What is no longer as it was when the state was accepted, as a sentence; of what is known of both."""
    groups: dict[str, list[str]] = {}
    for part, places in now.items():
        for place, said in places.items():
            before = _inner(state, part, place)
            for what, value in said.items():
                old = before.get(what)
                if isinstance(old, str) and old != value:
                    title = {"uuid": "", "serial": "serial number "}.get(what, f"{what} ")
                    groups.setdefault(f"{title}{old} -> {value}", []).append(place)
    changes = [f"{change} ({few(places)})" for change, places in groups.items()]
    return f" Changed since then: {few(changes, '; ')}" if changes else ""


def _facts(rank: Mapping[str, Any]) -> Mapping[str, Any]:
    return _inner(rank, "stages", "world", "facts")


def _inner(value: Any, *names: str) -> Mapping[str, Any]:
    """A mapping inside mappings of foreign input; empty where there is none."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}
