"""How the ranks agree, behind each stage, whether they go on together: over torchrun's own store, not over the group.

A rank whose stage failed, hung or died leaves its peers in the middle of a collective. So behind each stage every rank
tells how it ended there, and waits for the others, for as long as the stage may take. Where all ended alike the process
group goes on; otherwise each rank takes a new process, and these form a new group at the next stage. A rank that does
not come is waited for once.

No torch in this file: the first process of a rank takes its times from it.
"""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

WAIT_SECONDS = 60.0  # beyond a stage's own time: a new process of a peer has to import torch first
BEHIND_SECONDS = 2 * WAIT_SECONDS  # the first process waits longer than the second one for its peers
LOOK_SECONDS = 1.0  # between two looks whether one that is waited for was lost
SOUND = ("ok", "wrong", "skipped")
ROOT = "acceptance"


class AbsentError(Exception):
    """Ranks that do not come."""

    def __init__(self, ranks: list[int]) -> None:
        super().__init__(f"rank {', '.join(map(str, ranks))} did not come to the process group")
        self.ranks = ranks


class Meeting:
    def __init__(self, store: Any, rank: int, world_size: int) -> None:
        """store: torch.distributed's Store that all ranks share, and that outlives their processes."""
        self.store = store
        self.rank = rank
        self.ranks = range(world_size)

    def tell(self, stage: str, report: dict[str, Any]) -> None:
        self.store.set(f"{ROOT}/report/{stage}/{self.rank}", json.dumps(report))
        self.store.set(f"{ROOT}/end/{stage}/{self.rank}", report["status"])

    def together(self, stage: str, seconds: float) -> bool:
        """Whether all ranks ended this stage alike, so that the process group is as it should be."""
        missing = self.wait_for([f"{ROOT}/end/{stage}/{rank}" for rank in self.ranks], seconds + WAIT_SECONDS)
        self.note_absent(missing)
        if missing:
            return False
        statuses = {self.store.get(f"{ROOT}/end/{stage}/{rank}").decode() for rank in self.ranks}
        return statuses <= set(SOUND) and (statuses == {"skipped"} or "skipped" not in statuses)

    def gather(self, stage: str, seconds: float) -> None:
        """Wait for all ranks before a group is formed. Raises AbsentError.

        A rank that was lost in this stage does not come to it any more, but to the next one.
        """
        absent = [rank for rank in self.ranks if self.store.check([f"{ROOT}/absent/{rank}"])]
        if absent:
            raise AbsentError(absent)
        self.store.set(f"{ROOT}/here/{stage}/{self.rank}", "")
        until = time.monotonic() + seconds
        keys = [f"{ROOT}/here/{stage}/{rank}" for rank in self.ranks]
        while missing := self.wait_for(keys, min(LOOK_SECONDS, until - time.monotonic())):
            gone = [rank for rank in missing if self.store.check([f"{ROOT}/end/{stage}/{rank}"])]
            if gone:
                raise AbsentError(gone)
            if time.monotonic() > until:
                self.note_absent(missing)
                raise AbsentError(missing)

    def wait_for(self, keys: list[str], seconds: float) -> list[int]:
        """The ranks whose key is not there when the time is up."""
        until = time.monotonic() + seconds
        for key in keys:
            try:
                self.store.wait([key], timedelta(seconds=max(0.001, until - time.monotonic())))
            except RuntimeError:  # what a store's errors are, of a time limit too
                break
        return [rank for rank, key in enumerate(keys) if not self.store.check([key])]

    def note_absent(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            self.store.set(f"{ROOT}/absent/{rank}", "")

    def reports(self, stages: Iterable[str]) -> dict[int, dict[str, Any]]:
        """By rank and stage, what was told."""
        found: dict[int, dict[str, Any]] = {rank: {} for rank in self.ranks}
        for stage in stages:
            for rank in self.ranks:
                key = f"{ROOT}/report/{stage}/{rank}"
                if self.store.check([key]):
                    found[rank][stage] = json.loads(self.store.get(key))
        return found

    def close(self, seconds: float) -> None:
        """All leave together: torchrun ends the other ranks as soon as one ends with an error."""
        self.store.set(f"{ROOT}/closed/{self.rank}", "")
        self.wait_for([f"{ROOT}/closed/{rank}" for rank in self.ranks], seconds)
