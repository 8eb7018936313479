"""Entry points of the diagnosis for the launch program, which runs every second: the modules are loaded only when a
request needs them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..launch import starting, stopping
from ..tools.pack import source_of

if TYPE_CHECKING:
    from collections.abc import Callable

    # Listed also for pack.py, which must include them.
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
    """See starting.start. The node is recorded while the unit waits for its GPU slots."""
    if spec.get("observe"):
        spec["hook"] = source_of(f"{__package__}.hook")
    wanted = spec.pop("record", None)  # it contains a key, which must not be stored on the node
    if wanted is None:
        return starting.start(spec)
    return starting.start(spec, lambda: harmless(lambda: load("record").started(wanted, spec)))


def stop(request: Json) -> Json:
    """See stopping.stop. Facts that vanish with the unit are recorded before it is stopped, the others after."""
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
    """Return the result of a check, or why it failed: a failing check must not affect the launch."""
    try:
        return look()
    except Exception as problem:
        return {"failed": f"{type(problem).__name__}: {problem}"}


def snapshot_of(request: Json) -> Json:
    found: Json = load("snapshot").snapshot(request)
    return found
