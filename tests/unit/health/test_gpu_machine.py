"""The request that tests/gpu sends to a GPU machine has all arguments of the probes and rules. No GPU is needed."""

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

# The data that other looks and health.look require from a look.
SEEN = {"root": False, "name": "eth0", "processes": [], "why": ""}


def standin(real: Callable[..., Any], called: set[str], name: str) -> Callable[..., Any]:
    """Return a stub of a probe that accepts only the arguments of the real one."""

    @wraps(real)  # keeps the signature, which health.look inspects
    def look(*given: Any, **named: Any) -> dict[str, Any]:
        inspect.signature(real).bind(*given, **named)
        called.add(name)
        return dict(SEEN)

    return look


def test_every_probe_gets_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    called: set[str] = set()
    for name, real in list(LOOKS.items()):
        ways = {way: standin(getattr(real, way), called, name) for way in ("look", "again") if hasattr(real, way)}
        monkeypatch.setitem(LOOKS, name, SimpleNamespace(**ways))
    monkeypatch.setattr(health, "BETWEEN", 0.0)
    asked = own_health.request(8)
    seen = health.look(asked, unit_properties(asked["user"], "/", own_health.STOP_TIMEOUT))
    assert called == set(LOOKS)
    assert set(seen) == {*LOOKS, "later"}


def test_request_contains_the_options_of_nccl_health() -> None:
    asked = own_health.request(8)
    assert set(asked) == set(health.OPTIONS)
    assert (asked["gpus"], asked["nproc"], Path(asked["torchrun"]).name) == (8, 8, "torchrun")


def test_collected_data_can_be_evaluated() -> None:
    looks, usual = looked({"base": "server"})
    asked = own_health.request(8)
    looks["disk"][asked["run_root"]] = looks["disk"][usual["run_root"]]
    assert node.judge_looks(looks, asked)["verdict"]["coverage"]["ran"]
