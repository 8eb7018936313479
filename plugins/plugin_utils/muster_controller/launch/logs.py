"""The controller's copy of a launch's logs: artifacts/<cluster>/<run>/logs."""

from __future__ import annotations

import fcntl
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from muster.launch import launchers
from muster.launch.plan import masked
from muster_controller.artifacts.private_files import make_folder
from muster_controller.artifacts.runs import write_json

from . import kept_evidence
from .kept_log import KeptLog
from .tails import Tails

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from muster.verdict.redaction import Redaction
    from muster_controller.artifacts.keeping import Keeping

ANY_SIZE = 2**62  # bytes of each log kept as a file


class LogBook(Tails):
    """Writes each log part where it belongs, too."""

    def __init__(
        self,
        folder: Path,
        plan: dict[str, Any],
        on_line: Callable[[int, str, str], None],
        redaction: Redaction,
        keeping: Keeping,
        most: int = ANY_SIZE,
    ) -> None:
        """most: bytes of each log that are kept."""
        super().__init__(plan, on_line, redaction)
        self.folder = folder
        self.keeping = keeping
        self.most = most
        self.files: dict[tuple[str, str], KeptLog] = {}
        self.not_taken: dict[tuple[str, str], int] = {}
        self.lock: int | None = None
        self.others = False  # another supervisor of this launch keeps its logs there
        keeping.surely(folder, self.begin)

    def begin(self) -> None:
        """Make the folder ours, unless another supervisor has it.

        A launch that is attached to is fetched whole again; of a log that its node has no more, the copy stays.

        Raises OSError.
        """
        make_folder(self.folder)
        self.lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.others = True
            self.keeping.say(
                f"Another supervisor of this launch keeps its logs in {self.folder}; this one only watches"
            )

    def keep_plan(self, plan: dict[str, Any]) -> str:
        path = self.folder / "plan.json"
        return self.keeping.surely(path, partial(write_json, path, masked(plan, self.redaction)))

    def keep(self, node: str, key: str, text: str, gap: int) -> None:
        if self.others:
            return
        data = text.encode("utf-8", "replace")
        file = self.files.setdefault((node, key), KeptLog(self.path(node, key), self.most))
        gap += self.not_taken.pop((node, key), 0)
        if not self.keeping.keep(file.path, partial(file.add, data, gap), len(data)):
            self.not_taken[node, key] = gap + len(data)

    def keep_evidence(self, moment: str, node: str, found: Any) -> None:
        if not self.others:
            path = kept_evidence.path_of(self.folder, moment, node)
            self.keeping.keep(path, partial(write_json, path, found))

    def kept_evidence(self, nodes: Sequence[str]) -> Iterator[tuple[str, str, Any]]:
        return kept_evidence.kept(self.folder, nodes)

    def secret(self, new: bytes) -> bytes:
        shared: list[bytes] = []
        path = self.folder.parent / kept_evidence.KEY_FILE
        self.keeping.surely(path, lambda: shared.append(kept_evidence.shared_secret(self.folder, new)))
        return shared[0] if shared else new

    def path(self, node: str, key: str) -> Path:
        if key == "agent":
            return self.folder / "logs" / node / f"{launchers.log_name(self.launcher)}.log"
        rank, stream = self.of(node, key)
        return self.folder / "logs" / node / f"rank{rank}.{stream}.log"

    def close(self) -> None:
        """Have all of it in the files, and leave the folder to others."""
        for (node, key), file in self.files.items():
            if gap := self.not_taken.pop((node, key), 0):
                self.keeping.keep(file.path, partial(file.add, b"", gap))
            self.keeping.keep(file.path, file.finish)
        self.keeping.finish()
        if self.events.left_out:
            self.keeping.say(f"{self.events.left_out} events of ranks were left out: there were too many")
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None
