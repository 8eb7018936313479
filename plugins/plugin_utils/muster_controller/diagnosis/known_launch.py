"""Diagnosis of a running or finished launch on request, from the controller's artifacts or from its nodes.

This diagnosis changes nothing on nodes, stops no process and renews no lease.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from muster.diagnosis.case import LaunchCase
from muster.diagnosis.evidence import Snapshot
from muster.diagnosis.launched import SCHEMA, Gathered, case_shape, from_logs, involved
from muster.launch import launchers
from muster.launch.answers import reader
from muster.verdict import reading
from muster.verdict.reading import UnusableError
from muster_controller.artifacts.runs import history, kept_plan, read_json
from muster_controller.launch.elsewhere import find, is_own
from muster_controller.launch.kept_evidence import END, SNAPSHOT, START, kept, kept_key
from muster_controller.launch.tails import TAIL
from muster_controller.nodes.program import NodeProgram
from muster_controller.playbook.foreign import foreign

from .afterwards import Afterwards

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from muster.launch.planned import LaunchPlan, PlannedNode
    from muster_controller.nodes.messages import Messages

LAUNCH = NodeProgram("launch")
SECONDS = 15.0
TIMEOUT = 120.0  # seconds of rendezvous, if the launch's value is unknown


def newest(cluster_folder: Path) -> str:
    """Return the id of the last launch that was started from this controller, or "" if there is none."""
    return next((path.name for path in history(cluster_folder) if (path / "plan.json").is_file()), "")


def kept_case(folder: Path) -> LaunchCase | None:
    """Return the case that was gathered when the launch failed, or None if there is none or the launch was running."""
    kept: Any = read_json(folder / "evidence.json")
    return LaunchCase(kept) if kept.get("schema") == SCHEMA and kept["launch"].get("live") is False else None


class KnownLaunch:
    """A launch of Muster. folder: the folder of its artifacts on the controller, if the controller has any."""

    def __init__(
        self,
        launch_id: str,
        folder: Path,
        messages: Messages,
        nodes: Sequence[str],
        cluster: Mapping[str, Any],
        give_up: Callable[[], bool],
    ) -> None:
        self.messages = messages
        self.give_up = give_up
        self.folder = folder
        self.plan: LaunchPlan = kept_plan(folder) or find(messages, nodes, launch_id, cluster).plan
        self.read = reader(self.plan.ranks)
        self.silent: dict[str, str] = {}
        self.who: dict[str, Mapping[str, Any]] = {}  # identity of the login account on each node
        self.live = False

    def case(self) -> LaunchCase:
        """Return the case. Raises PlanError."""
        logs = self.logs()
        verdict = read_json(self.folder / "verdict.json")
        said = "" if self.live else str(verdict.get("summary", "the outcome of the launch is unknown"))
        # A node that does not respond now was not necessarily lost by a finished launch.
        record = from_logs(self.plan, logs, said, self.silent if self.live else {})
        gathered = self.recorded()
        looks = Afterwards(self.plan, involved(record), self.messages, self.give_up, self.silent)
        looks.look(gathered, live=self.live)
        epoch = time.time() - time.monotonic()
        return LaunchCase(case_shape(record, gathered, epoch, TIMEOUT, live=self.live))

    def recorded(self) -> Gathered:
        """Return the evidence recorded at the start and end of the launch or, if it is running, a new snapshot of its
        ranks."""
        gathered = Gathered(key=kept_key(self.folder))
        moments: dict[str, dict[str, Any]] = {
            START: gathered.start,
            SNAPSHOT: gathered.snapshots,
            END: gathered.end,
        }
        for moment, node, found in kept(self.folder, self.plan.names):
            moments[moment][node] = found
        if self.live:
            gathered.end, gathered.snapshots = {}, {}
            for name, answer in self.ask("snapshot", self.snapshot_request, LAUNCH).items():
                try:
                    gathered.snapshots[name] = reading.read(Snapshot, answer)[0]
                except UnusableError as exc:
                    gathered.not_looked[name] = f"invalid snapshot: {exc}"
        return gathered

    def snapshot_request(self, entry: PlannedNode) -> dict[str, Any]:
        return {
            "launch_id": self.plan.launch_id,
            "run_dir": entry.run_dir,
            "ports": [self.plan.master_port],
        }

    def logs(self) -> dict[str, dict[str, str]]:
        """Return the end of all logs, by node. For nodes that do not respond, use the copies on the controller."""
        found = {entry.node: self.kept_logs(entry) for entry in self.plan.nodes}
        for name, answer in self.ask("follow", self.follow_request).items():
            try:
                parts = self.read(name, "logs", answer)[0]["logs"]
            except UnusableError as exc:
                self.silent[name] = f"invalid response: {exc}"
                continue
            self.live = self.live or answer.get("over") is False
            found[name].update({key: part["text"] for key, part in parts.items() if part["text"]})
        return found

    def kept_logs(self, entry: PlannedNode) -> dict[str, str]:
        folder = self.folder / "logs" / entry.node
        names = {"agent": f"{launchers.log_name(self.plan.launcher)}.log"}
        names |= {f"{local}/stderr": f"rank{rank}.stderr.log" for local, rank in enumerate(entry.ranks)}
        return {key: text for key, name in names.items() if (text := read_end(folder / name, TAIL))}

    def follow_request(self, entry: PlannedNode) -> dict[str, Any]:
        return {
            "launch_id": self.plan.launch_id,
            "run_dir": entry.run_dir,
            "offsets": {},
            "tail": TAIL,
            "limit": TAIL * (2 * entry.nproc + 1),
            "wait": 0.0,
        }

    def ask(
        self, verb: str, request: Callable[[PlannedNode], dict[str, Any]], program: NodeProgram | None = None
    ) -> dict[str, Any]:
        """Send one request to all nodes. Return the responses, and record in `silent` why the other nodes did not
        respond."""
        entries = {entry.node: entry for entry in self.plan.nodes if entry.node not in self.silent}
        if not self.who:
            for name in entries:
                self.messages.ask(name, "identity", {})
            known = self.messages.gather("identity", entries, SECONDS, lambda _: None, self.give_up)
            for name in entries:
                answer = known.get(name)
                if answer and isinstance(answer.data, dict):
                    self.who[name] = answer.data
                else:
                    self.silent[name] = answer.error if answer else "no response"
        asked = [name for name in entries if name in self.who]
        for name in asked:
            message, privileged = self.access(self.who[name])
            self.messages.ask(name, verb, {**request(entries[name]), **message}, privileged=privileged, program=program)
        answers = self.messages.gather(verb, asked, SECONDS, lambda _: None, self.give_up)
        found = {}
        for name in asked:
            answer = answers.get(name)
            if answer is None or not isinstance(answer.data, dict):
                self.silent[name] = answer.error if answer else "no response"
            else:
                found[name] = answer.data
        return found

    def access(self, who: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        """Return the fields of a request that select the account which reads the launch, and whether root is needed.

        An administrator reads a user launch as its user, through root.
        """
        is_user = is_own(who)
        if self.plan.is_own and not is_user and who.get("name") != self.plan.user:
            return {"own": True, "as": self.plan.user}, True
        own = is_user or self.plan.is_own
        return {"own": own}, not own


def read_end(path: Path, most: int) -> str:
    """Return the end of a file as text, or "" if the file cannot be read."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - most))
            text = stream.read(most).decode("utf-8", "replace")
    except OSError:
        return ""
    foreign(text)
    return text
