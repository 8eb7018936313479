"""Evidence that the nodes of a launch record for a diagnosis: at the start, at a failure, and at the end.

Kept in artifacts/<cluster>/<launch>/evidence/{start,snapshot,end}/<node>.json. Missing evidence never stops a launch.
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

MOST_PEERS = 32  # whose routes a node reports
MOST_NAMES = 16
ROOM = 5000  # responses that wait to be read
SETTLE = 10.0  # seconds
FAILED = "failed"  # key of a response that only contains the reason why a node has no evidence


class LaunchEvidence:
    """start, snapshots, end: the evidence of each node, parsed and with secrets masked. silent: why a node has no
    snapshot.

    key: hexadecimal key for the digests of this launch's environment.
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

    # ------------------------------------------------------------ requests

    def request(self, plan: LaunchPlan, entry: PlannedNode) -> RecordRequest:
        nodes = plan.nodes
        place = entry.node_rank
        # The head node, and the following nodes on a ring. All nodes together cover every route.
        others = [nodes[0], *nodes[place + 1 :], *nodes[1:place]]
        peers = {one.node: one.address for one in others if one is not entry}
        script = entry.script or ""
        if plan.image and not script.startswith(f"{entry.run_dir}/"):
            script = ""  # in the image, or in a folder that is mounted into it
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

    # ------------------------------------------------------------ responses

    def take(self, moment: str, node: str, given: Any) -> None:
        """Parse and store a response in a thread, because this takes seconds with hundreds of nodes and must not delay
        the launch."""
        if given is not None and not self.aside.do(partial(self.read, moment, node, given)):
            self.note(f"{node}: evidence ({moment}) discarded, because too many responses are waiting")

    def settle(self, seconds: float = SETTLE) -> None:
        """Wait until all received evidence is parsed."""
        if not self.aside.wait(seconds):
            self.note("Some evidence from the nodes could not be processed in time")

    def read(self, moment: str, node: str, given: Any) -> None:
        """Parse the evidence of a node, and store the valid parts."""
        if isinstance(given, dict) and isinstance(given.get(FAILED), str):
            self.note(f"{node}: evidence ({moment}) could not be recorded: {one_line(given[FAILED])}")
            return
        try:
            found, dropped = reading.read(SHAPES[moment], given)
        except reading.UnusableError as why:
            self.note(f"{node}: invalid evidence ({moment}): {why}")
            return
        if moment == SNAPSHOT:
            dropped += self.without_strangers(node, found)
        if dropped:
            self.note(f"{node}: invalid parts of the evidence ({moment}): {', '.join(dropped)}")
        covered = self.covered(found)
        self.put(moment, node, covered)
        self.logs.keep_evidence(moment, node, covered)

    def without_strangers(self, node: str, found: Snapshot) -> tuple[str, ...]:
        """Remove duplicate ranks, and ranks that the plan does not assign to the node. The list is untrusted, because
        the training user wrote it."""
        theirs: dict[tuple[int, int], RankShot] = {}
        for shot in found["ranks"]:
            place = (shot["local_rank"], shot["rank"])
            if place in self.ranks[node]:
                theirs.setdefault(place, shot)
        left_out = len(theirs) != len(found["ranks"])
        found["ranks"] = list(theirs.values())
        return ("ranks that are not in the plan",) if left_out else ()

    def covered(self, found: Any) -> Any:
        """Mask secrets given by the user, and words of command lines that look like secrets."""
        if program := found.get("program"):
            program["argv"] = masked_argv(program["argv"])
        text = json.dumps(found, ensure_ascii=False)
        # Masking each entry takes forty times as long.
        return found if self.logs.redaction.text(text) == text else self.logs.redaction.shape(found)

    def put(self, moment: str, node: str, found: Any) -> None:
        moments: dict[str, Any] = {START: self.start, SNAPSHOT: self.snapshots, END: self.end}
        moments[moment][node] = found

    def recall(self, nodes: list[str]) -> None:
        """Load the evidence that an earlier supervisor of this launch stored."""
        for moment, node, found in self.logs.kept_evidence(nodes):
            self.put(moment, node, found)
