"""Stops a launch on every node and fetches the rest of its logs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from muster.launch.outcome import Left
from muster.launch.unit import UnitEnd

from .kept_evidence import END

if TYPE_CHECKING:
    from collections.abc import Callable

    from muster.launch.messages import FreezeRequest, LastLook, Logs, LogsRequest, RecordRequest, StopRequest
    from muster.launch.planned import LaunchPlan
    from muster_controller.nodes.messages import Messages

    from .evidence import LaunchEvidence
    from .node_reports import NodeReports

STOP_BYTES = 512 * 1024  # of logs, with the last report
DRAIN_BYTES = 4 * 1024 * 1024  # of logs, in each following message
FREEZE_TIMEOUT = 5.0
STOP_TIMEOUT = 10.0  # in addition to the time between SIGTERM and SIGKILL
DRAIN_TIMEOUT = 20.0
SAID_EVERY = 10.0  # seconds
RANKS_HAVE = "have {:.0f} s until SIGKILL (launch_stop_timeout)"


class Stopping:
    def __init__(
        self,
        plan: LaunchPlan,
        messages: Messages,
        reports: NodeReports,
        say: Callable[[str], None],
        failure_timeout: float,
        asked_again: Callable[[], bool] = lambda: False,
        by_themselves: float = 0.0,
        evidence: LaunchEvidence | None = None,
    ) -> None:
        """failure_timeout: time in seconds between SIGTERM and SIGKILL for the unit. asked_again: returns whether the
        user has interrupted again; if so, a message is shown and stopping continues. by_themselves: time in seconds
        that the ranks have to end after their own SIGTERM, before the unit is stopped. evidence: records the state of
        each node at the end."""
        self.plan = plan
        self.evidence = evidence
        self.launch_id = plan.launch_id
        self.run_dirs = {entry.node: entry.run_dir for entry in plan.nodes}
        self.messages = messages
        self.reports = reports
        self.say = say
        self.by_themselves = by_themselves
        self.stop_timeout = STOP_TIMEOUT + failure_timeout + by_themselves
        self.began = self.told = time.monotonic()
        self.asked_again = asked_again

    def stop(self, *, dump: bool, why: str = "") -> dict[str, Left]:
        """Stop the launch on every node and fetch the rest of the logs. Return the leftover processes by node.

        dump: whether to freeze all ranks first and record the stack of every rank. why: the reason, which the nodes
        store.
        """
        if dump:
            self.freeze()
        for entry in self.plan.nodes:
            name, run_dir = entry.node, entry.run_dir
            record: RecordRequest | None = None
            with self.reports.contained(name):
                record = self.evidence.request(self.plan, entry) if self.evidence else None
            request: StopRequest = {
                "launch_id": self.launch_id,
                "run_dir": run_dir,
                "dump": dump,
                "offsets": self.reports.logs.offsets(name),
                "limit": STOP_BYTES,
                "seconds": self.by_themselves,
                "why": why,
                "record": record,
            }
            self.messages.ask(name, "stop", {**request}, privileged=True)
        self.began = self.told = time.monotonic()
        if self.by_themselves:
            self.say(f"SIGTERM was sent to the ranks, which {RANKS_HAVE.format(self.by_themselves)}")
        answers = self.messages.gather("stop", self.run_dirs, self.stop_timeout, self.reports.late, self.heed)
        left: dict[str, Left] = {}
        incomplete: set[str] = set()
        for name in self.run_dirs:
            answer = answers.get(name)
            if answer is None or answer.data is None:
                self.reports.lost(name, answer.error if answer else "")
                continue
            last: LastLook = answer.data
            if not last["clean"]:
                left[name] = Left(last["error"].line, last["leftovers"])
            if more_logs(last):
                incomplete.add(name)
            with self.reports.contained(name):
                self.reports.keep(answer)
            if self.evidence:
                with self.reports.contained(name):
                    self.evidence.take(END, name, last["record"])
            self.reports.by_node[name].unit = UnitEnd.read(last["unit_before"])
        with self.reports.contained("logs"):
            self.drain(incomplete)
        with self.reports.contained("logs"):
            self.reports.take_last_words()
        return left

    def heed(self) -> bool:
        """Report progress at intervals and after each further interruption. Never give up waiting."""
        if self.asked_again():
            longest = self.stop_timeout + DRAIN_TIMEOUT
            self.say(
                f"Still stopping {self.launch_id} on its nodes, for at most {longest:.0f} s; the verdict follows."
                " Processes that cannot be stopped now end when their lease or time limit expires"
            )
        waited = time.monotonic() - self.began
        if self.by_themselves and waited < self.by_themselves and time.monotonic() > self.told + SAID_EVERY:
            self.told = time.monotonic()
            self.say(f"Waiting for the ranks to end after SIGTERM: {self.by_themselves - waited:.0f} s left")
        return False

    def freeze(self) -> None:
        request: FreezeRequest = {"launch_id": self.launch_id}
        for name in self.run_dirs:
            self.messages.ask(name, "freeze", {**request}, privileged=True)
        self.messages.gather("freeze", self.run_dirs, FREEZE_TIMEOUT, self.reports.late, self.heed)

    def drain(
        self, nodes: set[str], seconds: float = DRAIN_TIMEOUT, give_up: Callable[[], bool] = lambda: False
    ) -> None:
        """Fetch the missing rest of the logs."""
        deadline = time.monotonic() + seconds
        errors: dict[str, str] = {}
        for name in nodes:
            self.ask_for_logs(name)
        while nodes and time.monotonic() < deadline and not give_up():
            self.heed()
            answer = self.messages.next(0.2)
            if answer is None or answer.verb != "logs" or answer.node not in nodes:
                continue
            if answer.data is not None:
                self.reports.take_logs(answer)
            if answer.data is not None and more_logs(answer.data):
                self.ask_for_logs(answer.node)
                continue
            nodes.discard(answer.node)
            if answer.data is None:
                errors[answer.node] = f" ({answer.error})"
        for name in (*nodes, *errors):
            why = errors.get(name, "")
            self.say(f"{name}: logs incomplete on the controller{why}; complete on the node: {self.run_dirs[name]}")

    def ask_for_logs(self, name: str) -> None:
        request: LogsRequest = {
            "launch_id": self.launch_id,
            "run_dir": self.run_dirs[name],
            "offsets": self.reports.logs.offsets(name),
            "limit": DRAIN_BYTES,
        }
        self.messages.ask(name, "logs", {**request})


def more_logs(answer: Logs) -> bool:
    return any(part["more"] for part in answer["logs"].values())
