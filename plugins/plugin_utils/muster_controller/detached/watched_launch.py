"""Starts, attaches to and stops a detached launch with restarts."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from muster.launch import image, outcome, watched
from muster.launch.endings import Ending
from muster.launch.jobs import usable
from muster.launch.manager import as_own
from muster.launch.outcome import LaunchRecord
from muster.launch.plan import build_plan
from muster.launch.planned import LaunchPlan
from muster.launch.preflight import without_project
from muster.launch.watch import Decision
from muster_controller.artifacts.runs import kept_plan
from muster_controller.launch.elsewhere import unpacked
from muster_controller.playbook.interruption import Interruption
from muster_controller.playbook.node_error import NodeError

from .handing_over import HandingOver, Watched, leases_over
from .watcher import spec_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from muster.launch.plan import LaunchRequest, NodeSpec
    from muster.launch.watched import Word
    from muster.verdict.finding import Verdict
    from muster.verdict.redaction import Redaction
    from muster_controller.launch.settings import Settings
    from muster_controller.nodes.connection import NodeConnection

STOPPING_SLACK = 90.0  # additional seconds for a watcher to stop everything


@dataclass
class WatchedOutcome:
    """verdict: None if the watcher has no verdict. plan: the plan of the newest attempt. plans: all plans, starting
    with the oldest. attempts: the outcome of each attempt. began: whether a launch was started. why: why the watcher
    has no verdict."""

    plan: LaunchPlan
    verdict: Verdict | None = None
    plans: list[LaunchPlan] = field(default_factory=list)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    began: bool = True
    running: bool = False
    left: bool = False
    why: str = ""


class WatchedLaunch:
    def __init__(
        self,
        folder: Path,
        connect: Callable[[str], NodeConnection],
        say: Callable[[str], None],
        quote: Callable[[str], None],
        settings: Settings,
        nodes: Sequence[str],
    ) -> None:
        """folder: the folder of the cluster's launches on the controller. quote: shows text that the controller did not
        write. nodes: all nodes of the inventory."""
        self.folder = folder
        self.connect = connect
        self.say = say
        self.quote = quote
        self.settings = settings
        self.nodes = nodes
        self.interruption = Interruption()

    # ------------------------------------------------------------ starting

    def begin(
        self,
        request: LaunchRequest,
        inventory: Sequence[NodeSpec],
        plan: LaunchPlan,
        redaction: Redaction,
        keep: Callable[[LaunchPlan], str],
    ) -> WatchedOutcome:
        """Start the watcher of the launch, and wait until all ranks are running. keep: stores the plan and returns the
        error."""
        taking_part = plan.names
        specs = {spec.name: spec for spec in inventory}
        ways = {name: self.connect(name) for name in (*taking_part, *request.options.spares)}
        with self.interruption:
            handing = HandingOver(ways, self.say, lambda: self.interruption.came)
            try:
                whose, against = handing.whose(self.settings.options.run_as)
                against += image.own(list(ways), whose.user) if request.image else []
                if against:
                    return WatchedOutcome(plan, outcome.refused(against), began=False)
                more = {**request.more, "watched": {"node": handing.head, "launch_id": request.launch_id}}
                request = as_own(replace(request, more=more), whose.user)
                plan = build_plan(request, list(inventory))
                lost = keep(plan)
                others = {name: specs[name].address for name in ways if name != handing.head}
                if against := handing.unreached(whose.user, others):
                    return WatchedOutcome(plan, outcome.refused(against), began=False)
                if self.settings.project:
                    nodes = [specs[name] for name in ways]
                    if failures := without_project(handing.bring(self.settings.project, plan, nodes)):
                        return WatchedOutcome(plan, outcome.refused(failures), began=False)
                if lost:
                    text = f"the plan of the detached launch could not be written on the controller: {lost}"
                    return WatchedOutcome(
                        plan, outcome.refused([watched.WATCHER.fail(handing.head, text)]), began=False
                    )
                told = {
                    name: {"address": specs[name].address, "interpreter": way.interpreter} for name, way in ways.items()
                }
                spec = spec_of(request, list(inventory), self.settings, redaction, told, handing.head)
                if why := "" if not self.interruption.came else self.interruption.decision().text:
                    return WatchedOutcome(plan, outcome.refused([watched.WATCHER.fail(handing.head, why)]), began=False)
                if why := handing.begin(request.launch_id, spec):
                    failed = watched.WATCHER.fail(
                        handing.head, f"the watcher of the launch could not be started: {why}", fix="Check the node"
                    )
                    return WatchedOutcome(plan, outcome.refused([failed]), began=False)
            finally:
                handing.close()
            self.say(
                f"{handing.head} watches the launch and starts further attempts; user launch of {whose.user} (no root)"
            )
            return self.until_it_runs(plan)

    def until_it_runs(self, plan: LaunchPlan) -> WatchedOutcome:
        """Wait until all ranks are running. An interruption stops the launch."""

        def follow(watcher: Watched) -> Word | None:
            found = watcher.follow(lambda word: word.running or self.interruption.came)
            return self.ended(watcher) if found and self.interruption.came and not found.over else found

        return self.seen(plan, follow)

    # ------------------------------------------------------------ attaching

    def attach(self, plan: LaunchPlan) -> WatchedOutcome:
        """Follow the launch to its end. An interruption does not stop the launch."""
        with self.interruption:
            return self.seen(plan, lambda watcher: watcher.follow(lambda _word: self.interruption.came))

    def stop(self, plan: LaunchPlan) -> WatchedOutcome:
        """Stop the watcher first, so that no further attempt starts. The watcher stops the running attempt."""
        with self.interruption:
            return self.seen(plan, self.ended)

    def seen(self, plan: LaunchPlan, follow: Callable[[Watched], Word | None]) -> WatchedOutcome:
        watcher = self.watched(plan)
        try:
            return self.outcome(plan, follow(watcher))
        except NodeError as problem:
            return WatchedOutcome(plan, why=str(problem))
        finally:
            watcher.close()

    def ended(self, watcher: Watched) -> Word | None:
        """Stop the watcher, and return its last report. Raises NodeError."""
        if not (word := watcher.word()).over and (why := watcher.end()):
            raise NodeError(f"the stop request could not be sent to the watcher: {why}", reachable=True)
        if word.over:
            return word
        self.say(f"Asked the watcher on {watcher.head} to stop the launch")
        seconds = self.settings.options.stop_timeout + self.settings.options.failure_timeout + STOPPING_SLACK
        return watcher.follow(lambda _word: False, seconds)

    # ------------------------------------------------------------ outcome

    def outcome(self, plan: LaunchPlan, word: Word | None) -> WatchedOutcome:
        if word is None:
            return WatchedOutcome(plan, why="the watcher did not end in time")
        if not word.known and not word.alive:
            return WatchedOutcome(plan, why="the watcher no longer exists on the node, for example after a reboot")
        plans = [found for one in word.attempts if (found := self.plan_of(one, plan))]
        newest = plans[-1] if plans else plan
        if word.verdict is None and not word.alive:
            return WatchedOutcome(newest, plans=plans, why="the watcher ended without reporting the launch's outcome")
        return WatchedOutcome(newest, word.verdict, plans, word.history, running=word.verdict is None, left=word.left)

    def plan_of(self, attempt: Mapping[str, Any], first: LaunchPlan) -> LaunchPlan | None:
        """Return the plan of an attempt from its watcher, with the user of the first attempt. If the plan is invalid,
        show a message and return None."""
        found = unpacked(attempt["plan"])
        try:
            run_dir = str(found["nodes"][0]["run_dir"])
        except (TypeError, KeyError, IndexError):
            run_dir = ""
        owner = first.user if first.is_own else ""
        why = usable(found, attempt["launch_id"], run_dir, self.nodes, owner)
        plan = None if why else LaunchPlan.read(found)
        if plan and self.is_another(plan, first):
            why = "the controller already stores another launch with this ID"
        if why:
            self.say(f"attempt {attempt['number']} ({attempt['launch_id']}) cannot be fetched: {why}")
            return None
        return plan

    def is_another(self, plan: LaunchPlan, first: LaunchPlan) -> bool:
        """Return whether the folder of this attempt belongs to another launch, which the watcher did not start."""
        folder = self.folder / plan.launch_id
        kept = kept_plan(folder)
        is_kept = (folder / "plan.json").exists()
        return plan.watched != first.watched or (is_kept and (kept is None or kept.watched != first.watched))

    def wait_for_leases(self, plan: LaunchPlan) -> None:
        """Wait until all processes that a lost watcher started have certainly ended."""
        seconds = leases_over(len(plan.nodes), self.settings.options)
        self.say(f"the watcher is lost; waiting {seconds:.0f} s until the launch ends because its lease expires")
        until = time.monotonic() + seconds
        with self.interruption:
            while time.monotonic() < until and not self.interruption.came:
                time.sleep(0.1)

    def watched(self, plan: LaunchPlan) -> Watched:
        known = plan.watched or {"node": plan.head.node, "launch_id": plan.launch_id}
        watcher = watched.WatcherPlace(plan.user, known["node"], str(self.folder), self.nodes)
        return Watched(known["launch_id"], self.connect(known["node"]), self.quote, watcher)


def runs_detached(plan: LaunchPlan) -> Verdict:
    return outcome.judge(LaunchRecord(plan, Decision(Ending.DETACHED, "supervised by its watcher")), "")
