"""Return the values that must be the same on every node as strings. Unknown and inapplicable values are None."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from . import gpu_peers
from .environment import in_force, shown
from .rdma import active_ports, firmware, unused
from .rdma_addresses import FULL, used_partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def traits(facts: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, str | None]:
    gpus = request["gpus"] > 0 and request["backend"] == "nccl"
    return {
        "os": _joined(facts["system"]["id"], facts["system"]["version"]),
        "kernel": facts["system"]["kernel"] or None,
        **_software(facts, gpus),
        **_gpus(facts, gpus),
        "hca_firmware": _firmware(facts) if gpus else None,
        **_rdma(facts, request),
        **_link(facts),
        "environment": _environment(facts),
        "nccl_conf": shown(in_force(facts["environment"]["nccl_conf"])) or "empty" if gpus else None,
        "code": _code(facts),
    }


def _joined(*words: str) -> str | None:
    return " ".join(word for word in words if word) or None


def _software(facts: Mapping[str, Any], gpus: bool) -> dict[str, str | None]:
    inside = facts["unit"]["inside"] or {}
    said = inside.get("torch", {}).get("said") or {}
    torch, loaded = said.get("torch") or {}, said.get("loaded") or {}
    nccl = (loaded.get("nccl") or {}).get("version") or (torch.get("nccl") or {}).get("version")
    return {
        "python": said.get("python_full"),
        "torch": torch.get("version") or None,
        "cuda": torch.get("cuda"),
        "nccl": nccl if gpus else None,
        "driver": (facts["driver"]["loaded"] or None) if gpus else None,
    }


def _gpus(facts: Mapping[str, Any], gpus: bool) -> dict[str, str | None]:
    """Return the models, VBIOS versions and other values that the driver reports for the GPUs, without duplicates."""
    devices = facts["gpu"]["gpus"] if gpus else []
    return {
        **gpu_peers.traits(devices),
        "gpu_model": ", ".join(sorted({each["name"] for each in devices if each.get("name")})) or None,
        "vbios": ", ".join(sorted({each["vbios"] for each in devices if each.get("vbios")})) or None,
    }


def _firmware(facts: Mapping[str, Any]) -> str | None:
    known = [
        f"{board} {', '.join(sorted(versions))}" for board, versions in firmware(facts["rdma"]["devices"]) if versions
    ]
    return "; ".join(known) or None


def _rdma(facts: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the values of the ports that NCCL would use. A value is None if it is unknown or the node has no such
    port."""
    found = [] if unused(facts, request) else active_ports(facts)
    infiniband = [port for port in found if port["layer"] == "InfiniBand"]
    settings = facts["rdma"]["settings"]
    pkeys = [pkey for port in infiniband if (pkey := used_partition(port, settings)[1]) is not None]
    mtus = [facts["roce"][port["name"]]["mtu"] for port in found if port["name"] in facts["roce"]]
    return {
        "rdma_ports": _counted(f"{port['layer']} at {port['rate']:g} Gbit/s" for port in found if port["rate"]),
        # The first GID of an InfiniBand port begins with its subnet; that of a RoCE port does not.
        "ib_subnets": _several(port["gids"]["0"]["gid"][:19] for port in infiniband if "0" in port["gids"]),
        "ib_managers": _several(port["manager"] for port in infiniband if port["manager"] not in ("", "0x0")),
        "ib_partitions": _several(f"{pkey & ~FULL:#06x}" for pkey in pkeys),
        "roce_mtu": _several(str(mtu) for mtu in mtus if mtu),
    }


def _several(values: Iterable[str]) -> str | None:
    return ", ".join(sorted(set(values))) or None


def _counted(values: Iterable[str]) -> str | None:
    return ", ".join(f"{count} {what}" for what, count in sorted(Counter(values).items())) or None


def _link(facts: Mapping[str, Any]) -> dict[str, str | None]:
    links = facts["ethernet"]["links"]
    training = links.get(facts["ethernet"]["name"], {})
    mtu = training.get("mtu")
    # For a bond or a VLAN, use the speed of the first link below it.
    speed = next((link["speed"] for link in links.values() if link["speed"]), None)
    return {"mtu": str(mtu) if mtu else None, "link_speed": f"{speed} Mbit/s" if speed else None}


def _environment(facts: Mapping[str, Any]) -> str | None:
    seen = facts["environment"]
    if facts["unit"]["way"] != "unit":
        return None
    # An empty environment is a value too: a node with variables set is the one that differs.
    return shown({**seen["login"], **seen["unit"]}) or "empty"


def _code(facts: Mapping[str, Any]) -> str | None:
    prints = facts["code"]
    if not prints or any(not each["digest"] and each["why"] != "not found" for each in prints.values()):
        return None
    return "; ".join(f"{path} {each['digest'] or 'missing'}" for path, each in prints.items())
