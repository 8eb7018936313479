"""What the nodes of one launch recorded of themselves: at its start, as it failed and at its end; for its diagnosis.

It is kept in artifacts/<cluster>/<launch>/evidence/{start,snapshot,end}/<node>.json. Losing any of it ends nothing.
"""

from __future__ import annotations

import json
import secrets
from functools import partial
from typing import TYPE_CHECKING, Any

from muster.launch.plan import beat_port
from muster.verdict import reading
from muster.verdict.masking import masked_argv
from muster_controller.playbook.aside import Aside
from muster_controller.playbook.node_error import one_line

from .kept_evidence import END, SECRET_BYTES, SHAPES, SNAPSHOT, START, key_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from muster.diagnosis.evidence import NodeRecord, RankShot, Snapshot
    from muster.launch.messages import RecordRequest, SnapshotRequest
    from muster.launch.planned import LaunchPlan, PlannedNode

    from .tails import Tails

MOST_PEERS = 32  # whose routes a node looks up
MOST_NAMES = 16
ROOM = 5000  # answers that wait to be read
SETTLE = 10.0  # seconds
FAILED = "failed"  # in the place of all else: why a node could not make its part


class LaunchEvidence:
    """start, snapshots, end: what was recorded, by node, read and covered. silent: why a node has no snapshot.

    key: hexadecimal, of the digests of the environment in this launch.
    """

    def __init__(self, plan: LaunchPlan, logs: Tails, note: Callable[[str], None]) -> None:
        self.launch_id = plan.launch_id
        self.ranks = {entry.node: list(enumerate(entry.ranks)) for entry in plan.nodes}
        self.logs = logs
        self.note = note
        self.start: dict[str, NodeRecord] = {}
        self.snapshots: dict[str, Snapshot] = {}
        self.end: dict[str, NodeRecord] = {}
        self.silent: dict[str, str] = {}
        self.aside = Aside("evidence", ROOM, lambda exc: note(f"evidence: {type(exc).__name__}: {exc}"))
        self.secret = logs.secret(secrets.token_hex(SECRET_BYTES // 2).encode())

    @property
    def key(self) -> str:
        return key_of(self.secret, self.launch_id)

    # ------------------------------------------------------------ asking

    def request(self, plan: LaunchPlan, entry: PlannedNode) -> RecordRequest:
        nodes = plan.nodes
        place = entry.node_rank
        # The head node, and those that follow on a ring: between all of them, every way is looked up.
        others = [nodes[0], *nodes[place + 1 :], *nodes[1:place]]
        peers = {one.node: one.address for one in others if one is not entry}
        script = entry.script or ""
        if plan.image and not script.startswith(f"{entry.run_dir}/"):
            script = ""  # of the image, or of a folder that it is shown
        return {
            "launch_id": self.launch_id,
            "run_dir": entry.run_dir,
            "key": self.key,
            "peers": dict(list(peers.items())[:MOST_PEERS]),
            "names": plan.names[:MOST_NAMES],
            "script": script,
            "environment": entry.environment,
            "gpus": plan.backend == "nccl",
        }

    def snapshot_request(self, plan: LaunchPlan, entry: PlannedNode) -> SnapshotRequest:
        ports = [plan.master_port, beat_port(plan.master_port)]
        return {"launch_id": self.launch_id, "run_dir": entry.run_dir, "ports": ports}

    # ------------------------------------------------------------ taking

    def take(self, moment: str, node: str, given: Any) -> None:
        """Have it read and kept, aside: with hundreds of nodes that takes seconds, and lets no launch wait."""
        if given is not None and not self.aside.do(partial(self.read, moment, node, given)):
            self.note(f"{node}: its part of the evidence ({moment}) came while too much of it waited, and is left out")

    def settle(self, seconds: float = SETTLE) -> None:
        """Wait until all that was taken is read."""
        if not self.aside.wait(seconds):
            self.note("Not all of the evidence of the nodes could be read in time")

    def read(self, moment: str, node: str, given: Any) -> None:
        """Read what a node says, and keep what can be used."""
        if isinstance(given, dict) and isinstance(given.get(FAILED), str):
            self.note(f"{node}: its part of the evidence ({moment}) could not be made: {one_line(given[FAILED])}")
            return
        try:
            found, dropped = reading.read(SHAPES[moment], given)
        except reading.UnusableError as why:
            self.note(f"{node}: its part of the evidence ({moment}) is of no use: {why}")
            return
        if moment == SNAPSHOT:
            dropped += self.without_strangers(node, found)
        if dropped:
            self.note(f"{node}: of its part of the evidence ({moment}) this is of no use: {', '.join(dropped)}")
        covered = self.covered(found)
        self.put(moment, node, covered)
        self.logs.keep_evidence(moment, node, covered)

    def without_strangers(self, node: str, found: Snapshot) -> tuple[str, ...]:
        """Leave out ranks that the plan does not have there, and second ones: the training user has written which."""
        theirs: dict[tuple[int, int], RankShot] = {}
        for shot in found["ranks"]:
            place = (shot["local_rank"], shot["rank"])
            if place in self.ranks[node]:
                theirs.setdefault(place, shot)
        left_out = len(theirs) != len(found["ranks"])
        found["ranks"] = list(theirs.values())
        return ("ranks that are not of the plan",) if left_out else ()

    def covered(self, found: Any) -> Any:
        """Without what somebody gave as a secret, and what looks like one in a command line."""
        if program := found.get("program"):
            program["argv"] = masked_argv(program["argv"])
        text = json.dumps(found, ensure_ascii=False)
        # Entry by entry it takes forty times as long.
        return found if self.logs.redaction.text(text) == text else self.logs.redaction.shape(found)

    def put(self, moment: str, node: str, found: Any) -> None:
        moments: dict[str, Any] = {START: self.start, SNAPSHOT: self.snapshots, END: self.end}
        moments[moment][node] = found

    def recall(self, nodes: list[str]) -> None:
        """Take over what an earlier supervisor of this launch has kept."""
        for moment, node, found in self.logs.kept_evidence(nodes):
            self.put(moment, node, found)
