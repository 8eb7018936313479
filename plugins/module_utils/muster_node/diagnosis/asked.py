"""Entry points of the diagnosis for the launch program. That program runs every second, so each diagnosis module is
loaded only when a request needs it."""

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
    """Start a launch (see starting.start), and record the node's state while the unit waits for its GPU slots."""
    if spec.get("observe"):
        spec["hook"] = source_of(f"{__package__}.hook")
    wanted = spec.pop("record", None)  # it contains a key, which must not be stored on the node
    if wanted is None:
        return starting.start(spec)
    return starting.start(spec, lambda: harmless(lambda: load("record").started(wanted, spec)))


def stop(request: Json) -> Json:
    """Stop a launch (see stopping.stop). Record data that is lost with the unit before the stop, and other data after
    it."""
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
    """Return the result of a check, or the reason for its failure. A failed check must not affect the launch."""
    try:
        return look()
    except Exception as problem:
        return {"failed": f"{type(problem).__name__}: {problem}"}


def snapshot_of(request: Json) -> Json:
    found: Json = load("snapshot").snapshot(request)
    return found
