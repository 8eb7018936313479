"""The supervisor of a launch: starts it on every node, watches it, stops it on all nodes, and fetches its files.

All times are on the monotonic clock.
"""

from __future__ import annotations

import base64
import secrets
import time
from typing import TYPE_CHECKING

from muster.launch import grants, launchers, standing
from muster.launch.answers import reader
from muster.launch.endings import Ending
from muster.launch.fetched import sentence
from muster.launch.manager import not_theirs, others
from muster.launch.outcome import LaunchRecord
from muster.launch.plan import beat_port, masked
from muster.launch.preflight import Prepared
from muster.launch.standstill import standing_still
from muster.launch.text import pruned, whose
from muster.launch.unit import unit_properties
from muster.launch.watch import FOREVER, Decision, Limits, pace
from muster.verdict.words import few
from muster_controller.nodes import own_limits
from muster_controller.nodes.program import NodeProgram
from muster_controller.playbook.interruption import Interruption

from .elsewhere import packed
from .evidence import LaunchEvidence
from .fetching import Fetching, with_patterns
from .image import Imaging
from .kept_evidence import START
from .launch_messages import LaunchMessages
from .link_probe import probe_links
from .node_reports import NodeReports
from .preparation import identities, in_their_name, prepare
from .reserving import RESERVE_LEASE, Reserving
from .sending import COPY_TIMEOUT, Sending
from .snapshots import Snapshots
from .stopping import Stopping
from .watching import Watching

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from muster.launch.fetched import Fetched
    from muster.launch.messages import PeersRequest, StartRequest
    from muster.launch.planned import LaunchPlan, PlannedNode
    from muster_controller.artifacts.keeping import Keeping
    from muster_controller.playbook.node_error import Way

    from .settings import Settings
    from .tails import Tails

PROGRAM = NodeProgram("launch")
START_TIMEOUT = 20.0
BRING_TIMEOUT = 600.0  # for the logs of one attempt


class Supervisor:
    def __init__(
        self,
        plan: LaunchPlan,
        connections: Mapping[str, Way],
        settings: Settings,
        logs: Tails,
        say: Callable[[str], None],
        own_plan: Callable[[str], LaunchPlan] | None = None,
        interruption: Interruption | None = None,
    ) -> None:
        """own_plan: builds the plan of the launch as a user launch. interruption: shared by all attempts of a
        launch."""
        self.own_plan = own_plan
        self.plan = plan
        self.settings = settings
        self.options = settings.options
        self.logs = logs
        self.say = say
        self.pace = pace(len(plan.nodes), settings.options.silence_timeout)
        self.messages = LaunchMessages(connections, PROGRAM, reader(plan.ranks))
        self.messages.own = plan.is_own
        self.reports = NodeReports(plan, logs, say)
        self.evidence = LaunchEvidence(plan, logs, self.reports.note)
        self.snapshots = Snapshots(connections, self.messages, self.evidence)
        self.interruption = interruption or Interruption()
        self.on_running: Callable[[], None] = lambda: None
        self.prepared = Prepared(plan)
        self.reserving = Reserving(plan.launch_id, settings, self.messages, say, self.interruption)
        self.sending = Sending(settings, self.messages, say, self.interruption)
        self.imaging = Imaging(settings.image, self.messages, say, self.interruption)
        self.started = False  # a detached launch that continues without this supervisor
        self.watching: Watching | None = None
        self.token = secrets.token_hex(32)  # between the launch's nodes; stored only there

    # ------------------------------------------------------------ the complete launch

    def launch(self) -> LaunchRecord:
        """Start the launch and supervise it until it ends or, if it is detached, until all ranks are running."""
        nodes = len(self.plan.nodes)
        if missing := grants.judge(own_limits.raise_for(nodes), nodes):
            return LaunchRecord(self.plan, None, missing)
        return self.guarded(lambda: self.prepare() or self.see_through(lambda: self.start() or self.watch()))

    def attach(self) -> LaunchRecord:
        """Supervise a running detached launch to the end. An interruption does not stop the launch."""
        self.started = True
        self.evidence.recall(list(self.reports.by_node))
        return self.guarded(lambda: self.refused() or self.see_through(self.watch))

    def end(self) -> LaunchRecord:
        """Stop a running detached launch."""
        by_hand = Decision(Ending.INTERRUPTED, "ended by hand (launch_stop)", by_hand=True)
        return self.guarded(lambda: self.refused() or self.see_through(lambda: by_hand))

    def refused(self) -> LaunchRecord | None:
        """Return a record with the reason if the login user cannot manage a user launch. Only the launch's user, or an
        administrator as that user, can follow or stop it."""
        if not self.messages.own:
            return None
        known = identities(self.plan, self.messages, lambda: self.interruption.came)
        seen = {name: answer.data for name, answer in known.items() if answer.data is not None}
        found = not_theirs(self.plan, seen)
        if not found:
            self.messages.user = self.plan.user
            if by_others := others(self.plan, seen):
                silent = set(self.reports.by_node) - set(seen)
                self.messages.by_root = frozenset(by_others | silent)
                tried = in_their_name(by_others, self.messages, lambda: self.interruption.came)
                found = not_theirs(self.plan, seen, tried)
        return LaunchRecord(self.plan, None, found, self.reports.all()) if found else None

    def guarded(self, errand: Callable[[], LaunchRecord]) -> LaunchRecord:
        """Run an operation during which signals are only recorded, because processes on nodes must be stopped first."""
        own_limits.raise_for(len(self.plan.nodes))
        with self.interruption:
            self.messages.open()
            record = errand()
            self.evidence.settle()
            return record

    def prepare(self) -> LaunchRecord | None:
        """Inspect every node. Return None if the launch can start, or a record with all reasons why it cannot."""
        prepared = self.reserving.prepared(
            lambda: self.imaging.after(
                self.sending.after(
                    prepare(self.plan, self.settings, self.messages, lambda: self.interruption.came, self.own_plan)
                )
            )
        )
        self.reports.reached(prepared.reached)
        if self.options.probe and not self.interruption.came and not prepared.refused:
            beats = beat_port(prepared.plan.master_port) if self.options.detached else None
            prepared.findings += probe_links(prepared.plan, self.messages, lambda: self.interruption.came, beats)
        if self.interruption.came or prepared.refused:
            decision = self.interruption.decision() if self.interruption.came else None
            return LaunchRecord(self.plan, decision, prepared.findings, self.reports.all())
        self.prepared = prepared
        self.plan = prepared.plan
        self.logs.keep_plan(self.plan)
        for said in (whose(self.plan), *prepared.notes) if not self.settings.earlier else ():
            self.say(said)  # unchanged in further attempts
        return None

    def see_through(self, work: Callable[[], Decision]) -> LaunchRecord:
        """Do the work. Then stop the launch on every node and fetch its files, unless the launch continues detached.

        Never raises for errors on a node.
        """
        self.reports.reached(set(self.reports.by_node))
        record = LaunchRecord(self.plan, None, [], self.reports.all(), began=time.monotonic())
        record.decision = decision = self.decided(work)
        record.preflight = [*self.prepared.findings, *self.reserving.findings]
        if decision.ending is Ending.DETACHED:
            return record
        record.stop_began = time.monotonic()
        record.noticed = (self.watching and self.watching.noticed) or record.stop_began
        record.notices = self.watching.notices if self.watching else []
        stalled = decision.ending is Ending.STALLED
        self.interruption.answered = self.interruption.signals
        with self.reports.contained("snapshots"):
            self.snapshots.gather(lambda: self.interruption.again)
        with self.reports.contained("the end"):
            if stalled:
                record.stuck = standing_still({report.node: report.ranks for report in record.reports})
            stopping = Stopping(
                self.plan,
                self.messages,
                self.reports,
                self.say,
                self.options.failure_timeout,
                lambda: self.interruption.again,
                self.options.stop_timeout if decision.by_hand else 0,
                self.evidence,
            )
            record.leftovers = stopping.stop(dump=stalled, why=f"{decision.ending.name.lower()}: {decision.text}")
        record.unseen = [report.node for report in record.reports if report.lost]
        record.cleaned = time.monotonic()
        return record

    def fetch(self, record: LaunchRecord, folder: Path, keeping: Keeping) -> Fetched | None:
        """Fetch the result files that match the patterns after the end of the launch, even if it failed."""
        found = None
        plan = with_patterns(self.plan, self.options)
        if plan.fetch and record.cleaned:
            with self.interruption, self.reports.contained("what is fetched"):
                self.interruption.answered = self.interruption.signals
                fetching = Fetching(plan, self.messages, folder, keeping, lambda: self.interruption.again)
                found = fetching.fetch([one.node for one in record.reports if one.reached and not one.lost])
                self.say(sentence(found))
        return found

    def bring_logs(self) -> LaunchRecord:
        """Fetch only the logs of a launch that another process has supervised to its end."""
        self.reports.reached(set(self.reports.by_node))
        self.messages.user = self.plan.user
        with self.interruption:
            self.messages.open()
            stopping = Stopping(self.plan, self.messages, self.reports, self.say, 0.0)
            stopping.drain(set(self.reports.by_node), BRING_TIMEOUT, lambda: self.interruption.came)
            if without := [name for name in self.reports.by_node if not self.logs.offsets(name)]:
                self.say(f"{few(without)}: no log of {self.plan.launch_id} received")
            self.logs.finish()
        return LaunchRecord(self.plan, None, [], self.reports.all(), cleaned=time.monotonic())

    def decided(self, work: Callable[[], Decision]) -> Decision:
        try:
            return work()
        except BaseException as exc:  # after any error, only a detached launch may continue without a supervisor
            why = f"the supervisor failed: {type(exc).__name__}: {exc}"
            self.say(why)
            return Decision(Ending.DETACHED if self.started else Ending.INTERRUPTED, why)

    # ------------------------------------------------------------ the launch

    def start(self) -> Decision | None:
        kept = packed(masked(self.plan, self.logs.redaction))
        for entry in self.plan.nodes:
            request = {**self.start_request(entry), "plan": kept}
            self.messages.ask(entry.node, "start", request, privileged=True)
        nodes = list(self.reports.by_node)
        timeout = START_TIMEOUT + (COPY_TIMEOUT if self.settings.project else 0.0)
        answers = self.messages.gather("start", nodes, timeout, self.reports.late)
        if self.interruption.came:
            return self.interruption.decision()
        for name in nodes:
            answer = answers.get(name)
            with self.reports.contained(name):
                self.evidence.take(START, name, answer.data.get("record") if answer and answer.data else None)
            if answer is None or answer.data is None:
                error = answer.error if answer else "no response"
            elif not answer.data["started"]:
                error = answer.data["error"]
            elif changed := self.sending.changed(answer.data):
                error = changed
            else:
                continue
            return Decision(Ending.FAILED, f"could not be started on {name}: {error}", name, starting=True)
        removed = pruned({name: answer.data for name, answer in answers.items()})
        if removed:
            self.say(removed)
        return self.reserving.reserve({name: answer.data["reserved"] for name, answer in answers.items()})

    def start_request(self, entry: PlannedNode) -> StartRequest:
        settings, options = self.settings, self.options
        return {
            "launch_id": self.plan.launch_id,
            "user": self.plan.user,
            "reader": self.prepared.readers[entry.node],
            "argv": entry.argv,
            "env": entry.env,
            "run_dir": entry.run_dir,
            "work_dir": "" if options.chdir else entry.work_dir,
            "earlier": list(settings.earlier),
            "lease": RESERVE_LEASE,
            "seats": entry.seats or [],
            "shared": options.shared,
            "waits": options.wait,
            "time_limit": options.time_limit,
            "properties": unit_properties(
                self.plan.user,
                options.chdir or entry.work_dir,
                options.failure_timeout,
                own=self.messages.own,
                in_image=settings.image is not None,
            ),
            "keep": settings.cluster.run_keep,
            "keep_bytes": settings.cluster.run_keep_mb * 1_000_000,
            "log_max": options.log_max,
            "script_name": settings.script_name,
            "script_body": base64.b64encode(settings.script_body).decode(),
            "stop_timeout": options.stop_timeout,
            "plan": "",
            "cache_root": entry.cache_root,
            "peers": self.peers(entry) if options.detached else None,
            "project": self.sending.request,
            "observe": standing.interval(options.notice_timeout) if options.observe else 0.0,
            "record": self.evidence.request(self.plan, entry),
            "image": self.imaging.request(self.plan, options.chdir),
        }

    def peers(self, entry: PlannedNode) -> PeersRequest:
        """Return the data with which the nodes of a detached launch can stop the launch everywhere without a
        supervisor."""
        return {
            "token": self.token,
            "address": self.plan.master_addr,
            "port": beat_port(self.plan.master_port),
            "own": entry.address,
            "nodes": self.plan.names,
            "rank": entry.node_rank,
        }

    def watch(self) -> Decision:
        """Watch all nodes until the launch has finished or must be stopped."""
        self.watching = Watching(
            self.plan,
            self.pace,
            self.limits(),
            self.lease,
            self.messages,
            self.reports,
            self.interruption,
            self.say,
            lambda decision: self.snapshots.ask(self.plan, decision),
            self.options.notice_timeout,
            self.on_running,
        )
        return self.watching.until_over()

    @property
    def lease(self) -> float:
        """Return the duration of the lease in seconds. A detached launch has no lease, but a time limit."""
        return FOREVER if self.options.detached else self.pace.lease

    def limits(self) -> Limits:
        stall = self.options.stall_timeout
        any_ranks = self.plan.launcher == launchers.OTHERS
        if self.started:
            return Limits(stall=stall, notice=self.pace.notice, patience=FOREVER, any_ranks=any_ranks)
        return Limits(
            stall=stall,
            start=self.options.rendezvous_timeout,
            notice=self.pace.notice,
            patience=self.pace.patience,
            until_running=self.options.detached,
            any_ranks=any_ranks,
        )
