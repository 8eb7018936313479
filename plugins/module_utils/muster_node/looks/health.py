"""Collect node health data in parallel, because collectors spend most of their time waiting for programs."""

from __future__ import annotations

import inspect
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from .subjects import LOOKS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

# The options of nccl_health.
OPTIONS: dict[str, dict[str, Any]] = {
    **{name: {"type": "str", "required": True} for name in ("node", "user", "address", "torchrun")},
    "interface": {"type": "str", "default": ""},
    "gpus": {"type": "int", "default": 0},
    "gpu_model": {"type": "str", "default": ""},
    "nproc": {"type": "int", "default": 1},
    "backend": {"type": "str", "choices": ["gloo", "nccl"], "default": "gloo"},
    "port": {"type": "int", "default": 29500},
    "head": {"type": "bool", "default": False},
    "run_root": {"type": "str", "default": "/var/lib/muster/launches"},
    "code": {"type": "list", "elements": "str", "default": []},
    "collective": {"type": "bool", "default": False},
    "allow": {"type": "list", "elements": "dict", "default": []},
    "shares": {"type": "list", "elements": "dict", "default": []},
}
# Minimum seconds between the two readings of the same counters.
BETWEEN = 0.3


# Looks that do not run in parallel: all others need the first, the next two fork a process, which is unsafe beside
# threads, and the last would disturb the others.
APART = ("system", "jobs", "code", "collective")


# In place of the data of the collector "unit", which imports torch, if only the machine is checked.
WITHOUT_UNIT = {"unit": {"way": "self", "why": "the short form does not start PyTorch", "inside": None}}


def look(
    request: Mapping[str, Any], properties: Mapping[str, str], given: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the data from each collector in LOOKS by name. request: options of nccl_health.

    properties: systemd properties of a launch's unit. given: data of collectors that do not run. The result's `later`
    contains the second reading of the counters.
    """
    given = given or {}
    began = time.monotonic()
    system = LOOKS["system"].look()
    known = {
        **request,
        "properties": properties,
        "root": bool(system["root"]),
        "load": request["backend"] == "nccl" and request["gpus"] > 0,
        "paths": [request["run_root"]],
        **given,
    }
    counted = {name: each for name, each in LOOKS.items() if hasattr(each, "again")}
    first = {name: asked(each.look, known, {}) for name, each in counted.items()}
    others = {name: each.look for name, each in LOOKS.items() if name not in (*APART, *counted, *given)}
    looks = {"system": system, **given, **first, **side_by_side(others, known)}
    looks["jobs"] = LOOKS["jobs"].look(looks["listeners"], request["port"])
    looks["code"] = LOOKS["code"].look(request["code"], request["user"])
    looks["collective"] = _collective(request, looks, properties)
    time.sleep(max(0.0, BETWEEN - (time.monotonic() - began)))
    looks["later"] = {name: each.again(first[name]) for name, each in counted.items()}
    return looks


def side_by_side(looks: Mapping[str, Callable[..., Any]], known: Mapping[str, Any]) -> dict[str, Any]:
    """Run all collectors in parallel. A collector that uses the data of another collector waits for that data."""
    builds = {name: [one for one in takes(each) if one in looks and one not in known] for name, each in looks.items()}
    started: dict[str, Future[Any]] = {}
    with ThreadPoolExecutor(max_workers=len(looks)) as pool:
        for name in sorted(looks, key=lambda name: len(builds[name])):
            upon = {one: started[one] for one in builds[name]}
            started[name] = pool.submit(asked, looks[name], known, upon)
    return {name: answer.result() for name, answer in started.items()}


def asked(way: Callable[..., Any], known: Mapping[str, Any], upon: Mapping[str, Future[Any]]) -> Any:
    """Call a collector. Its parameter names select the arguments: known values, or the data of another collector."""
    given = {name: known[name] for name in takes(way) if name in known}
    return way(**given, **{name: answer.result() for name, answer in upon.items()})


def takes(way: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(way).parameters)


def _collective(request: Mapping[str, Any], looks: Mapping[str, Any], properties: Mapping[str, str]) -> Any:
    why = ""
    if not request["collective"]:
        why = "not requested (health_collective)"
    elif looks["jobs"]["processes"]:
        why = "a job is running on the node"
    elif looks["jobs"]["why"]:
        why = "could not check whether a job is running on the node"
    if why:
        return {"skipped": why, "why": "", "said": "", "wrong": []}
    return LOOKS["collective"].look(request, looks["ethernet"]["name"], properties)
