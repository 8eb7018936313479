"""What the program of a launch does for the diagnosis, at the few moments at which that is asked for: the modules are
loaded then alone, since a program that looks each second has no use for them."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..launch import starting, stopping
from ..tools.pack import source_of

if TYPE_CHECKING:
    # Named for pack.py as well, which has to bring them.
    from ..launch.running import Samples
    from . import hook, record, snapshot
    from . import sampling as samples

    LOADED = (hook, record, samples, snapshot)

Json = dict[str, Any]


def load(name: str) -> Any:
    return import_module(f".{name}", __package__)


def sampling(state: str, seconds: float) -> Samples:
    found: Samples = load("sampling").Sampling(state, seconds)
    return found


def start(spec: Json) -> Json:
    """See starting.start. The node is looked at while the unit comes to its seats."""
    if spec.get("observe"):
        spec["hook"] = source_of(f"{__package__}.hook")
    wanted = spec.pop("record", None)  # it holds a key, which is kept nowhere here
    return starting.start(spec, partial(load("record").started, wanted, spec) if wanted else None)


def stop(request: Json) -> Json:
    """See stopping.stop. What is gone with the unit is looked at before it is stopped, the rest behind its end."""
    wanted = request.get("record")
    return stopping.stop(request, load("record").Ended(wanted) if wanted else None)


def snapshot_of(request: Json) -> Json:
    found: Json = load("snapshot").snapshot(request)
    return found
