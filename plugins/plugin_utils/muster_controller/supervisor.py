"""The supervisor of a launch: starts it on every node, watches it, ends it everywhere, and gathers what is left.

All decisions are made in the one thread that calls it, by module_utils/muster/watch.py.
"""

from __future__ import annotations

import base64
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.launch import plan as planning
from muster.launch import preflight
from muster.launch.failure import NodeReport
from muster.launch.unit import unit_properties
from muster.launch.watch import Decision, Limits, Watch, standing_still
from muster.verdict.finding import Finding

from .messages import Answer, Messages
from .program import Program

if TYPE_CHECKING:
    from collections.abc import Callable

    from .connection import NodeConnection
    from .logs import LogBook

PROGRAM = Program("launch")
FOREVER = float("inf")
LEASE = 10.0  # seconds that a node goes on without having been looked at
LOOK_WAIT = 0.8  # a look returns at once when there is news, else after this long
LOOK_PAUSE = 0.25  # between two looks at one node
LOOK_BYTES = 512 * 1024  # of logs, in one look
PREPARE_TIMEOUT = 30.0
START_TIMEOUT = 20.0
FREEZE_TIMEOUT = 5.0
STOP_TIMEOUT = 15.0
DRAIN_TIMEOUT = 20.0
GRACE = 1.5  # after the first failure, for the other ranks to write their last words


@dataclass
class Settings:
    """What a start needs beside the plan; times in seconds. Meanings: roles/launch/meta/argument_specs.yml."""

    user: str
    stop_timeout: int
    stall_timeout: float
    rendezvous_timeout: int
    min_free_bytes: int
    keep: int
    detached: bool = False
    time_limit: int = 0
    chdir: str = ""
    script_name: str = ""
    script_body: bytes = b""

    @property
    def lease(self) -> float:
        """Detached, a launch is ended by its time limit instead."""
        return FOREVER if self.detached else LEASE


@dataclass
class Outcome:
    """How a launch ended. findings: of the preflight; decision: why it ended; reports: one per node."""

    plan: dict[str, Any]
    decision: Decision
    findings: list[Finding] = field(default_factory=list)
    reports: list[NodeReport] = field(default_factory=list)
    began: float = 0.0
    noticed: float = 0.0
    notices: list[float] = field(default_factory=list)
    stop_began: float = 0.0
    cleaned: float = 0.0
    leftovers: dict[str, str] = field(default_factory=dict)
    unseen: list[str] = field(default_factory=list)
    stalled: list[dict[str, Any]] = field(default_factory=list)


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
        self.entries = {entry["node"]: entry for entry in plan["nodes"]}
        self.settings = settings
        self.logs = logs
        self.say = say
        self.messages = Messages(connections, PROGRAM)
        self.findings: list[Finding] = []
        self.readers: dict[str, dict[str, Any]] = {}  # who looks on each node
        self.reports = {
            entry["node"]: NodeReport(entry["node"], reached=False, first_rank=entry["ranks"][0])
            for entry in plan["nodes"]
        }
        self.signalled = 0
        self.started = False  # a detached launch that goes on without this supervisor
        self.noticed = 0.0
        self.notices: list[float] = []
        self.parent = os.getppid()
        self.offsets: dict[str, float] = {}

    # ------------------------------------------------------------ the whole

    def launch(self) -> Outcome:
        """Start the launch and see it through; detached, until all of its ranks run."""
        return self.guarded(lambda: self.prepare() or self.see_through(lambda: self.start() or self.watch()))

    def attach(self) -> Outcome:
        """See a detached launch through. An interruption leaves it as it is."""
        self.started = True
        return self.guarded(lambda: self.see_through(self.watch))

    def end(self) -> Outcome:
        """End a launch that runs detached."""
        return self.guarded(lambda: self.see_through(lambda: Decision("interrupted", "ended by hand (launch_stop)")))

    def guarded(self, errand: Callable[[], Outcome]) -> Outcome:
        """Run an errand with signals noted instead of obeyed: what it began must be ended everywhere first."""
        previous = {
            number: signal.signal(number, self.on_signal) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        try:
            self.messages.open()
            return errand()
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def on_signal(self, number: int, _frame: Any) -> None:
        self.signalled = number

    @property
    def abandoned(self) -> bool:
        """Someone asked to stop, or ansible-playbook itself is gone (killed): nobody reads the result any more."""
        return bool(self.signalled) or os.getppid() != self.parent

    def interruption(self) -> Decision:
        if self.signalled:
            return Decision("interrupted", "ansible-playbook was interrupted")
        return Decision("interrupted", "ansible-playbook was killed")

    # ------------------------------------------------------------ before the start

    def prepare(self) -> Outcome | None:
        """Look at every node; None when all may start, else the outcome with all reasons."""
        head = self.plan["nodes"][0]["node"]
        for name in self.entries:
            self.messages.ask(name, "identity", {})
        known = self.messages.gather("identity", self.entries, PREPARE_TIMEOUT, self.late, lambda: self.abandoned)
        self.readers = {name: answer.data for name, answer in known.items() if answer.data is not None}
        for name in self.readers:
            entry = self.entries[name]
            request = {
                "user": self.settings.user,
                "executable": entry["argv"][0],
                "script": None if self.settings.script_name else script_of(entry),
                "chdir": self.settings.chdir or None,
                "run_root": str(Path(entry["run_dir"]).parent),
                "address": entry["address"],
                "port": self.plan["master_port"] if name == head else None,
            }
            self.messages.ask(name, "prepare", request, privileged=True)
        answers = self.messages.gather("prepare", self.readers, PREPARE_TIMEOUT, self.late, lambda: self.abandoned)
        findings: list[Finding] = []
        for name, entry in self.entries.items():
            answer = answers.get(name) if name in self.readers else known.get(name)
            if answer is None or answer.data is None:
                findings.append(unreachable(name, answer))
                continue
            self.reports[name].reached = True
            request = {
                "user": self.settings.user,
                "backend": self.plan["backend"],
                "min_free_bytes": self.settings.min_free_bytes,
                "script_is_sent": bool(self.settings.script_name),
            }
            findings += preflight.judge(entry, answer.data, request)
        failed = [finding for finding in findings if finding.status in ("fail", "unknown")]
        if self.abandoned or failed:
            decision = self.interruption() if self.abandoned else Decision("refused", "not started")
            return Outcome(self.plan, decision, findings, list(self.reports.values()))
        self.findings = findings
        self.plan = {
            **self.plan,
            "nodes": [planning.complete(entry, answers[entry["node"]].data or {}) for entry in self.plan["nodes"]],
        }
        self.entries = {entry["node"]: entry for entry in self.plan["nodes"]}
        self.logs.keep_plan(self.plan)
        return None

    # ------------------------------------------------------------ the launch

    def see_through(self, work: Callable[[], Decision]) -> Outcome:
        """Do the work, then end the launch on every node and gather what it left; unless it is to go on detached.

        Never raises for what happens on a node.
        """
        outcome = Outcome(self.plan, Decision("failed", ""), self.findings, list(self.reports.values()))
        outcome.began = time.time()
        for report in outcome.reports:
            report.reached = True
        try:
            outcome.decision = work()
        except BaseException as exc:  # whatever went wrong here, no node may go on unwatched
            outcome.decision = Decision("interrupted", f"the supervisor failed: {type(exc).__name__}: {exc}")
        if outcome.decision.kind == "detached":
            return outcome
        outcome.stop_began = time.time()
        outcome.noticed = self.noticed or outcome.stop_began
        outcome.notices = self.notices
        if outcome.decision.kind == "stalled":
            outcome.stalled = standing_still({name: report.ranks for name, report in self.reports.items()})
        outcome.leftovers = self.stop(dump=outcome.decision.kind == "stalled")
        outcome.unseen = [name for name, report in self.reports.items() if report.lost]
        outcome.cleaned = time.time()
        return outcome

    def start(self) -> Decision | None:
        for name, entry in self.entries.items():
            spec = {
                "launch_id": self.plan["launch_id"],
                "user": self.settings.user,
                "reader": self.readers[name],
                "argv": entry["argv"],
                "env": entry["env"],
                "run_dir": entry["run_dir"],
                "lease": self.settings.lease,
                "time_limit": self.settings.time_limit,
                "properties": unit_properties(
                    self.settings.user, self.settings.chdir or entry["run_dir"], self.settings.stop_timeout
                ),
                "keep": self.settings.keep,
                "script_name": self.settings.script_name,
                "script_body": base64.b64encode(self.settings.script_body).decode(),
            }
            self.messages.ask(name, "start", spec, privileged=True)
        answers = self.messages.gather("start", self.entries, START_TIMEOUT, self.late)
        if self.abandoned:
            return self.interruption()
        for name in self.entries:
            answer = answers.get(name)
            if answer is None or answer.data is None:
                return Decision(
                    "failed", f"could not be started on {name}: {answer.error if answer else 'no answer'}", name
                )
            if not answer.data["started"]:
                return Decision("failed", f"could not be started on {name}: {answer.data['error']}", name)
        return None

    def watch(self) -> Decision:
        """Look at all nodes until the launch is over or must be ended."""
        now = time.time()
        watch = Watch({name: entry["nproc"] for name, entry in self.entries.items()}, now, self.limits())
        for name in self.entries:
            self.look(name, 0.0)
        decision: Decision | None = None
        give_up_at = 0.0
        while True:
            answer = self.messages.next(0.2)
            now = time.time()
            if answer is not None and answer.verb == "look":
                self.take_look(answer, watch, now)
                if not watch.nodes[answer.node].over:
                    self.look(answer.node, LOOK_PAUSE)
            for sentence in watch.notices(now):
                self.notices.append(now)
                self.say(sentence)
            if self.abandoned:
                return Decision("detached", "left running") if self.started else self.interruption()
            if decision is None:
                decision = watch.decide(now)
                if decision is not None:
                    self.noticed = now
                    if decision.kind != "failed":
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

    def look(self, name: str, delay: float) -> None:
        entry = self.entries[name]
        request = {
            "launch_id": self.plan["launch_id"],
            "run_dir": entry["run_dir"],
            "lease": self.settings.lease,
            "wait": LOOK_WAIT,
            "offsets": self.logs.offsets(name),
            "limit": LOOK_BYTES,
        }
        self.messages.ask(name, "look", request, delay=delay)

    def take_look(self, answer: Answer, watch: Watch, now: float) -> None:
        if answer.data is None:
            watch.no_answer(answer.node, answer.error)
            return
        watch.saw(answer.node, answer.data, now)
        self.keep(answer)

    def keep(self, answer: Answer) -> None:
        """What a look (or the last one, in stop) told, into the node's report and logs."""
        data = answer.data or {}
        report = self.reports[answer.node]
        report.last_answer = answer.received
        # The node's clock is read last of all, so this is its offset less the way back: the largest is the truest.
        offset = data["clock"] - answer.received
        self.offsets[answer.node] = max(offset, self.offsets.get(answer.node, offset))
        report.clock_offset = self.offsets[answer.node]
        report.ended = data["result"] or report.ended
        report.unit = data["unit"]
        report.ranks = data["ranks"] or report.ranks
        report.errors.update(data["errors"])
        report.disk = data["disk"]
        self.logs.take(answer.node, data["logs"])

    # ------------------------------------------------------------ the end

    def stop(self, *, dump: bool) -> dict[str, str]:
        """End the launch on every node and gather the rest of its logs; returns {node: what is left there}."""
        if dump:
            for name in self.entries:
                self.messages.ask(name, "freeze", {"launch_id": self.plan["launch_id"]}, privileged=True)
            self.messages.gather("freeze", self.entries, FREEZE_TIMEOUT, self.late)
        for name, entry in self.entries.items():
            request = {
                "launch_id": self.plan["launch_id"],
                "run_dir": entry["run_dir"],
                "dump": dump,
                "offsets": self.logs.offsets(name),
                "limit": LOOK_BYTES,
            }
            self.messages.ask(name, "stop", request, privileged=True)
        answers = self.messages.gather("stop", self.entries, STOP_TIMEOUT, self.late)
        left = {}
        for name, report in self.reports.items():
            answer = answers.get(name)
            if answer is None or answer.data is None:
                report.lost = True
                report.lost_why = answer.error if answer else ""
                continue
            self.keep(answer)
            report.unit = answer.data["unit_before"]
            if not answer.data["clean"]:
                left[name] = answer.data["error"] or str(answer.data["leftovers"])
        self.drain({name for name, answer in answers.items() if answer.data and more_logs(answer.data)})
        for name, report in self.reports.items():
            report.agent_log = self.logs.tail(name, "agent")
            report.stderr = self.logs.stderr_tails(name)
        return left

    def drain(self, nodes: set[str]) -> None:
        """Fetch what is still missing of the logs."""
        deadline = time.time() + DRAIN_TIMEOUT
        for name in nodes:
            self.ask_for_logs(name)
        while nodes and time.time() < deadline:
            answer = self.messages.next(0.2)
            if answer is None or answer.verb != "logs" or answer.node not in nodes:
                continue
            if answer.data is None:
                nodes.discard(answer.node)
                continue
            self.logs.take(answer.node, answer.data["logs"])
            if more_logs(answer.data):
                self.ask_for_logs(answer.node)
            else:
                nodes.discard(answer.node)
        for name in nodes:
            self.say(f"{name}: logs are incomplete here; they are whole on the node in {self.entries[name]['run_dir']}")

    def ask_for_logs(self, name: str) -> None:
        request = {
            "run_dir": self.entries[name]["run_dir"],
            "offsets": self.logs.offsets(name),
            "limit": LOOK_BYTES * 8,
        }
        self.messages.ask(name, "logs", request)

    def late(self, answer: Answer) -> None:
        """A look that was under way when something else was asked."""
        if answer.verb == "look" and answer.data is not None:
            self.keep(answer)


def script_of(entry: dict[str, Any]) -> str:
    return str(next(word for word in entry["argv"][1:] if not word.startswith("--")))


def more_logs(data: dict[str, Any]) -> bool:
    return any(part["more"] for part in data["logs"].values())


def unreachable(name: str, answer: Answer | None) -> Finding:
    why = answer.error if answer else f"no answer within {PREPARE_TIMEOUT:.0f} s"
    if answer is not None and answer.reachable:
        return Finding(
            "launch.look", "fail", name, f"could not be looked at: {why}", fix={"text": "Fix that, then run again"}
        )
    return Finding(
        "launch.unreachable",
        "fail",
        name,
        f"cannot be reached: {why}",
        fix={
            "text": "Fix it, or leave it out with",
            "command": f"-e '{{\"cluster_launch_nodes\": [...]}}' without {name}",
        },
    )
