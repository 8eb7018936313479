"""Runs checks that can fail independently. A failed part gets a default value, and the reason is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]

MOST_WHY = 200  # characters


class UnseenError(Exception):
    """Raised if a part cannot be checked; the message is the reason."""


class Parts:
    """Results of the checks. found: results by part. unseen: by part, the reason why the part could not be checked."""

    def __init__(self) -> None:
        self.found: Json = {}
        self.unseen: dict[str, str] = {}

    def look(self, name: str, work: Callable[[], Any], instead: Any) -> None:
        """Run `work` for one part of the snapshot. instead: the returned value if `work` fails."""
        self.found[name] = instead
        try:
            self.found[name] = work()
        except UnseenError as why:
            self.leave(name, str(why))
        except OSError as problem:
            self.leave(name, f"{problem.filename or ''} {problem.strerror or problem}".strip())
        except Exception as problem:  # an unexpected error in one part must not hide the others
            self.leave(name, f"{type(problem).__name__}: {problem}")

    def leave(self, name: str, why: str) -> None:
        self.unseen[name] = why[:MOST_WHY]
