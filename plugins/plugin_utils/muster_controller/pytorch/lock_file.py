"""Reads the lock file of an environment, next to the inventory, and writes it under an exclusive file lock."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.pytorch import lock
from muster.pytorch.choice import Ask, still_asked, updated
from muster.pytorch.lock import LockError, WheelSection
from muster_controller.playbook.one_writer import one_writer
from muster_controller.playbook.trusted import who_else_writes
from muster_controller.playbook.variables import project_root
from muster_node.tools import files

if TYPE_CHECKING:
    from collections.abc import Iterator


BRING_BACK = "Restore the file from version control, or delete it: the next run creates it again"
REVIEWED = "roles/pytorch/files/locks"


def reviewed() -> tuple[WheelSection, ...]:
    """Return the sections of the locks shipped with Muster."""
    files_of = (project_root() / REVIEWED).glob("*.txt")
    return tuple(section for path in sorted(files_of) for section in lock.parse(path.read_text()))


class LockText:
    """A lock file. path: the value of the option pytorch_lock."""

    def __init__(self, path: str) -> None:
        # Writing keeps a link.
        self.path = Path(os.path.realpath(Path(path).expanduser()))

    def __str__(self) -> str:
        return self.path.name

    def text(self) -> str:
        self._refuse_strangers()
        try:
            return files.read(str(self.path), most=lock.MOST).decode("utf-8")
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as problem:
            raise LockError(f"cannot be read ({problem}). Correct pytorch_lock") from None

    def _refuse_strangers(self) -> None:
        if found := who_else_writes(self.path):
            raise LockError(": ".join(found))

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Exclude other writers: the processes for nodes with another Python, and other runs."""
        try:
            with one_writer(self.path.parent):
                yield
        except OSError as problem:
            raise self._unwritable(problem) from None

    def write(self, text: str) -> None:
        try:
            files.replace(str(self.path), text.encode(), mode=0o644)
        except OSError as problem:
            raise self._unwritable(problem) from None

    def _unwritable(self, problem: OSError) -> LockError:
        return LockError(f"cannot be written ({problem.strerror}). Set pytorch_lock to a writable path, or to ''")

    def difference(self, before: str, after: str) -> dict[str, str]:
        path = str(self.path)
        return {"before": before, "after": after, "before_header": path, "after_header": path}


class LockFile(LockText):
    """A lock file with the wheels of environments."""

    def read(self) -> tuple[WheelSection, ...]:
        return self._parse(self.text())

    def take(self, section: WheelSection, asks: list[Ask]) -> dict[str, Any]:
        """Write a section from a node to the lock. Return the changes."""
        if not still_asked(section, asks):
            raise LockError(f"the node returned an environment for {section.title} that the inventory does not request")
        with self.alone():
            before = self.text()
            sections = self._parse(before)
            after_it = updated(sections, section, asks)
            after = lock.render(after_it)
            if after != before:
                self.write(after)
        return {"locked": lock.changes(sections, after_it, section), "diff": self.difference(before, after)}

    def _parse(self, text: str) -> tuple[WheelSection, ...]:
        try:
            return lock.parse(text)
        except LockError as problem:
            raise LockError(f"{problem}. {BRING_BACK}") from None
