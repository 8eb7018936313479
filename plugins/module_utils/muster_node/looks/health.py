"""Everything that a node's health is judged from, looked at side by side: most of it waits for programs."""

from __future__ import annotations

import inspect
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from .subjects import LOOKS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

# The options of nccl_health, which say what is looked at and how it is judged.
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
# What grows is known from two readings of the same counters, so far apart at least.
BETWEEN = 0.3


# These are not among those that are asked side by side: all others build on the first, the second begins a process of
# its own by a fork, which a thread must not, and the last would disturb them.
APART = ("system", "jobs", "collective")


def look(request: Mapping[str, Any], properties: Mapping[str, str]) -> dict[str, Any]:
    """Return what each file of LOOKS sees, by its name; request: the options of nccl_health.

    properties: those of a launch's unit. `later` holds what those files see again that count something.
    """
    began = time.monotonic()
    system = LOOKS["system"].look()
    known = {
        **request,
        "properties": properties,
        "root": bool(system["root"]),
        "load": request["backend"] == "nccl" and request["gpus"] > 0,
        "paths": [request["run_root"]],
    }
    counted = {name: each for name, each in LOOKS.items() if hasattr(each, "again")}
    first = {name: asked(each.look, known, {}) for name, each in counted.items()}
    others = {name: each.look for name, each in LOOKS.items() if name not in (*APART, *counted)}
    looks = {"system": system, **first, **side_by_side(others, known)}
    looks["jobs"] = LOOKS["jobs"].look(looks["listeners"], request["port"])
    looks["collective"] = _collective(request, looks, properties)
    time.sleep(max(0.0, BETWEEN - (time.monotonic() - began)))
    looks["later"] = {name: each.again(first[name]) for name, each in counted.items()}
    return looks


def side_by_side(looks: Mapping[str, Callable[..., Any]], known: Mapping[str, Any]) -> dict[str, Any]:
    """Ask all of them at once; one that takes what another saw waits for that one."""
    builds = {name: [one for one in takes(each) if one in looks and one not in known] for name, each in looks.items()}
    started: dict[str, Future[Any]] = {}
    with ThreadPoolExecutor(max_workers=len(looks)) as pool:
        for name in sorted(looks, key=lambda name: len(builds[name])):
            upon = {one: started[one] for one in builds[name]}
            started[name] = pool.submit(asked, looks[name], known, upon)
    return {name: answer.result() for name, answer in started.items()}


def asked(way: Callable[..., Any], known: Mapping[str, Any], upon: Mapping[str, Future[Any]]) -> Any:
    """Call a look with what its parameters are named after: what is known, or another look."""
    given = {name: known[name] for name in takes(way) if name in known}
    return way(**given, **{name: answer.result() for name, answer in upon.items()})


def takes(way: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(way).parameters)


def _collective(request: Mapping[str, Any], looks: Mapping[str, Any], properties: Mapping[str, str]) -> Any:
    why = ""
    if not request["collective"]:
        why = "it was not asked for (health_collective)"
    elif looks["jobs"]["processes"]:
        why = "a job runs on the node, and would be disturbed"
    elif looks["jobs"]["why"]:
        why = "whether a job runs on the node, which it would disturb, could not be seen"
    if why:
        return {"skipped": why, "why": "", "said": "", "wrong": []}
    return LOOKS["collective"].look(request, looks["ethernet"]["name"], properties)
