"""A look of many parts, each of which may fail by itself: what cannot be seen is missing, and why is said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]

MOST_WHY = 200  # characters


class UnseenError(Exception):
    """It says why a part could not be looked at."""


class Parts:
    """found: what was seen, by part. unseen: why a part was not."""

    def __init__(self) -> None:
        self.found: Json = {}
        self.unseen: dict[str, str] = {}

    def look(self, name: str, work: Callable[[], Any], instead: Any) -> None:
        """Have `work` look at a part. instead: what stands there where it could not."""
        self.found[name] = instead
        try:
            self.found[name] = work()
        except UnseenError as why:
            self.leave(name, str(why))
        except OSError as problem:
            self.leave(name, f"{problem.filename or ''} {problem.strerror or problem}".strip())
        except Exception as problem:  # no surprise in one file of a stranger's machine may hide all the others
            self.leave(name, f"{type(problem).__name__}: {problem}")

    def leave(self, name: str, why: str) -> None:
        self.unseen[name] = why[:MOST_WHY]
