"""What the program of a launch does for the diagnosis, at the few moments at which that is asked for: the modules are
loaded then alone, since a program that looks each second has no use for them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..launch import starting, stopping
from ..tools.pack import source_of

if TYPE_CHECKING:
    from collections.abc import Callable

    # Named for pack.py as well, which has to bring them.
    from ..launch.running import SampleKeeper
    from . import hook, record, snapshot
    from . import sampling as samples

    LOADED = (hook, record, samples, snapshot)

Json = dict[str, Any]


def load(name: str) -> Any:
    return import_module(f".{name}", __package__)


def sampling(state: str, seconds: float) -> SampleKeeper:
    found: SampleKeeper = load("sampling").Sampling(state, seconds)
    return found


def start(spec: Json) -> Json:
    """See starting.start. The node is looked at while the unit comes to its seats."""
    if spec.get("observe"):
        spec["hook"] = source_of(f"{__package__}.hook")
    wanted = spec.pop("record", None)  # it holds a key, which is kept nowhere here
    if wanted is None:
        return starting.start(spec)
    return starting.start(spec, lambda: harmless(lambda: load("record").started(wanted, spec)))


def stop(request: Json) -> Json:
    """See stopping.stop. What is gone with the unit is looked at before it is stopped, the rest behind its end."""
    wanted = request.get("record")
    return stopping.stop(request, AnswerEvidence(wanted) if wanted else None)


class AnswerEvidence:
    def __init__(self, wanted: Json) -> None:
        self.wanted = wanted
        self.ended: Any = None

    def before_stop(self) -> None:
        def look() -> Json:
            self.ended = load("record").Ended(self.wanted)
            self.ended.before_stop()
            return {}

        harmless(look)

    def record(self) -> Json:
        def look() -> Json:
            found: Json = self.ended.record()
            return found

        return harmless(look)


def harmless(look: Callable[[], Json]) -> Json:
    """What a look says, or why it failed: the launch begins and ends as it would without it."""
    try:
        return look()
    except Exception as problem:
        return {"failed": f"{type(problem).__name__}: {problem}"}


def snapshot_of(request: Json) -> Json:
    found: Json = load("snapshot").snapshot(request)
    return found
