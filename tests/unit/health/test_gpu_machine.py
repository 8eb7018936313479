"""What tests/gpu asks of a machine with GPUs is all that the looks and the judges take: no machine here runs it."""

from __future__ import annotations

import inspect
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import own_health
from looked_at import looked
from muster.health import node
from muster.launch.unit import unit_properties
from muster_node.looks import health
from muster_node.looks.subjects import LOOKS

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

# What a look of the same name is asked for by the others, and by health.look.
SEEN = {"root": False, "name": "eth0", "processes": [], "why": ""}


def standin(real: Callable[..., Any], called: set[str], name: str) -> Callable[..., Any]:
    """Takes what the real one takes, and nothing else."""

    @wraps(real)  # its signature, which health.look asks for
    def look(*given: Any, **named: Any) -> dict[str, Any]:
        inspect.signature(real).bind(*given, **named)
        called.add(name)
        return dict(SEEN)

    return look


def test_every_look_gets_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    called: set[str] = set()
    for name, real in list(LOOKS.items()):
        ways = {way: standin(getattr(real, way), called, name) for way in ("look", "again") if hasattr(real, way)}
        monkeypatch.setitem(LOOKS, name, SimpleNamespace(**ways))
    monkeypatch.setattr(health, "BETWEEN", 0.0)
    asked = own_health.request(8)
    seen = health.look(asked, unit_properties(asked["user"], "/", own_health.STOP_TIMEOUT))
    assert called == set(LOOKS)
    assert set(seen) == {*LOOKS, "later"}


def test_it_is_asked_what_the_module_is_asked() -> None:
    asked = own_health.request(8)
    assert set(asked) == set(health.OPTIONS)
    assert (asked["gpus"], asked["nproc"], Path(asked["torchrun"]).name) == (8, 8, "torchrun")


def test_what_is_seen_can_be_judged_for_it() -> None:
    looks, usual = looked({"base": "server"})
    asked = own_health.request(8)
    looks["disk"][asked["run_root"]] = looks["disk"][usual["run_root"]]
    assert node.judge_looks(looks, asked)["verdict"]["coverage"]["ran"]
