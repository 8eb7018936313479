"""The supervisor of a launch: starts it on every node, watches it, ends it everywhere, and gathers what is left.

When a launch is over, and why, is decided by module_utils/muster/launch/watch.py, in the one thread that calls it.
"""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, Any

from muster.launch.endings import Ending
from muster.launch.outcome import Record
from muster.launch.standstill import standing_still
from muster.launch.unit import unit_properties
from muster.launch.watch import FOREVER, Decision, Limits, Watch

from .interruption import Interruption
from .messages import Answer, Messages
from .node_reports import NodeReports
from .preparation import Prepared, prepare
from .program import Program
from .reserving import RESERVE_LEASE, Reserving
from .stopping import Stopping

if TYPE_CHECKING:
    from collections.abc import Callable

    from muster.launch.messages import LookRequest, StartRequest

    from .connection import NodeConnection
    from .logs import LogBook
    from .settings import Settings

PROGRAM = Program("launch")
LOOK_WAIT = 0.8  # a look returns at once when there is news, else after this long
LOOK_PAUSE = 0.25  # between two looks at one node
LOOK_BYTES = 512 * 1024  # of logs, in one look
START_TIMEOUT = 20.0
GRACE = 1.5  # after the first failure, for the other ranks to write their last words


class Supervisor:
    def __init__(
        self,
        plan: dict[str, Any],
        connections: dict[str, NodeConnection],
        settings: Settings,
        logs: LogBook,
        say: Callable[[str], None],
    ) -> None:
        self.plan = plan
        self.settings = settings
        self.logs = logs
        self.say = say
        self.messages = Messages(connections, PROGRAM)
        self.reports = NodeReports(plan, logs)
        self.interruption = Interruption()
        self.prepared = Prepared(plan)
        self.reserving = Reserving(plan["launch_id"], settings, self.messages, say, self.interruption)
        self.started = False  # a detached launch that goes on without this supervisor
        self.noticed = 0.0
        self.notices: list[float] = []

    # ------------------------------------------------------------ the whole

    def launch(self) -> Record:
        """Start the launch and see it through; detached, until all of its ranks run."""
        return self.guarded(lambda: self.prepare() or self.see_through(lambda: self.start() or self.watch()))

    def attach(self) -> Record:
        """See a detached launch through. An interruption leaves it as it is."""
        self.started = True
        return self.guarded(lambda: self.see_through(self.watch))

    def end(self) -> Record:
        """End a launch that runs detached."""
        by_hand = Decision(Ending.INTERRUPTED, "ended by hand (launch_stop)")
        return self.guarded(lambda: self.see_through(lambda: by_hand))

    def guarded(self, errand: Callable[[], Record]) -> Record:
        """Run an errand with signals noted instead of obeyed: what it began must be ended everywhere first."""
        with self.interruption:
            self.messages.open()
            return errand()

    def prepare(self) -> Record | None:
        """Look at every node; None when all may start, else the record with all reasons."""
        prepared = self.reserving.prepared(
            lambda: prepare(self.plan, self.settings, self.messages, lambda: self.interruption.came)
        )
        self.reports.reached(prepared.reached)
        if self.interruption.came or prepared.refused:
            decision = self.interruption.decision() if self.interruption.came else None
            return Record(self.plan, decision, prepared.findings, self.reports.all())
        self.prepared = prepared
        self.plan = prepared.plan
        self.logs.keep_plan(self.plan)
        return None

    def see_through(self, work: Callable[[], Decision]) -> Record:
        """Do the work, then end the launch on every node and gather what it left; unless it is to go on detached.

        Never raises for what happens on a node.
        """
        self.reports.reached(set(self.reports.by_node))
        began = time.time()
        try:
            decision = work()
        except BaseException as exc:  # whatever went wrong here, no node may go on unwatched
            decision = Decision(Ending.INTERRUPTED, f"the supervisor failed: {type(exc).__name__}: {exc}")
        findings = [*self.prepared.findings, *self.reserving.findings]
        record = Record(self.plan, decision, findings, self.reports.all(), began=began)
        if decision.ending is Ending.DETACHED:
            return record
        record.stop_began = time.time()
        record.noticed = self.noticed or record.stop_began
        record.notices = self.notices
        stalled = decision.ending is Ending.STALLED
        if stalled:
            record.stuck = standing_still({report.node: report.ranks for report in record.reports})
        record.leftovers = Stopping(self.plan, self.messages, self.reports, self.say).stop(dump=stalled)
        record.unseen = [report.node for report in record.reports if report.lost]
        record.cleaned = time.time()
        return record

    # ------------------------------------------------------------ the launch

    def start(self) -> Decision | None:
        for entry in self.plan["nodes"]:
            self.messages.ask(entry["node"], "start", {**self.start_request(entry)}, privileged=True)
        nodes = list(self.reports.by_node)
        answers = self.messages.gather("start", nodes, START_TIMEOUT, self.reports.late)
        if self.interruption.came:
            return self.interruption.decision()
        for name in nodes:
            answer = answers.get(name)
            if answer is None or answer.data is None:
                error = answer.error if answer else "no answer"
            elif not answer.data["started"]:
                error = answer.data["error"]
            else:
                continue
            return Decision(Ending.FAILED, f"could not be started on {name}: {error}", name)
        return self.reserving.reserve({name: answer.data["reserved"] for name, answer in answers.items()})

    def start_request(self, entry: dict[str, Any]) -> StartRequest:
        settings = self.settings
        return {
            "launch_id": self.plan["launch_id"],
            "user": settings.user,
            "reader": self.prepared.readers[entry["node"]],
            "argv": entry["argv"],
            "env": entry["env"],
            "run_dir": entry["run_dir"],
            "lease": RESERVE_LEASE,
            "seats": entry["seats"],
            "shared": settings.shared,
            "waits": settings.wait,
            "time_limit": settings.time_limit,
            "properties": unit_properties(settings.user, settings.chdir or entry["run_dir"], settings.stop_timeout),
            "keep": settings.keep,
            "script_name": settings.script_name,
            "script_body": base64.b64encode(settings.script_body).decode(),
        }

    def watch(self) -> Decision:
        """Look at all nodes until the launch is over or must be ended."""
        entries = {entry["node"]: entry for entry in self.plan["nodes"]}
        watch = Watch({name: entry["nproc"] for name, entry in entries.items()}, time.time(), self.limits())
        for entry in entries.values():
            self.look(entry, 0.0)
        decision: Decision | None = None
        give_up_at = 0.0
        while True:
            answer = self.messages.next(0.2)
            now = time.time()
            if answer is not None and answer.verb == "look":
                self.take_look(answer, watch, now)
                if not watch.nodes[answer.node].over:
                    self.look(entries[answer.node], LOOK_PAUSE)
            for sentence in watch.notices(now):
                self.notices.append(now)
                self.say(sentence)
            if self.interruption.came:
                return Decision(Ending.DETACHED, "left running") if self.started else self.interruption.decision()
            if decision is None:
                decision = watch.decide(now)
                if decision is not None:
                    self.noticed = now
                    if decision.ending is not Ending.FAILED:
                        return decision
                    # A victim is often seen before the culprit: let the others say theirs.
                    give_up_at = now + GRACE
            elif now > give_up_at or all(node.over for node in watch.nodes.values()):
                return decision

    def limits(self) -> Limits:
        if self.started:
            # A launch that runs on its own is not ended because the controller cannot see a part of it for a while.
            return Limits(stall=self.settings.stall_timeout, patience=FOREVER)
        return Limits(
            stall=self.settings.stall_timeout,
            start=self.settings.rendezvous_timeout,
            until_running=self.settings.detached,
        )

    def look(self, entry: dict[str, Any], delay: float) -> None:
        request: LookRequest = {
            "launch_id": self.plan["launch_id"],
            "run_dir": entry["run_dir"],
            "lease": self.settings.lease,
            "wait": LOOK_WAIT,
            "offsets": self.logs.offsets(entry["node"]),
            "limit": LOOK_BYTES,
        }
        self.messages.ask(entry["node"], "look", {**request}, delay=delay)

    def take_look(self, answer: Answer, watch: Watch, now: float) -> None:
        if answer.data is None:
            watch.no_answer(answer.node, answer.error)
            return
        watch.saw(answer.node, answer.data, now)
        self.reports.keep(answer)
