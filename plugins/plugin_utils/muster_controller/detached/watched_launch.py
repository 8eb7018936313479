"""A detached launch with restarts, as whoever begins it, attaches to it or ends it has to do with it."""

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

STOPPING_SLACK = 90.0  # seconds for a watcher to end everything, beside those that ranks and units have


@dataclass
class WatchedOutcome:
    """verdict: None where no watcher has one. plan: of the newest attempt. plans: of all, the oldest first. attempts:
    how each ended. began: whether there is a launch at all. why: why the watcher has no verdict."""

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
        """folder: of the cluster's launches here. quote: say what is not our own. nodes: of the inventory."""
        self.folder = folder
        self.connect = connect
        self.say = say
        self.quote = quote
        self.settings = settings
        self.nodes = nodes
        self.interruption = Interruption()

    # ------------------------------------------------------------ begun

    def begin(
        self,
        request: LaunchRequest,
        inventory: Sequence[NodeSpec],
        plan: LaunchPlan,
        redaction: Redaction,
        keep: Callable[[LaunchPlan], str],
    ) -> WatchedOutcome:
        """Have a watcher begin it, and see that all of its ranks run. keep: the plan; why that failed, or nothing."""
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
                    text = f"without its plan here a detached launch cannot be found again: {lost}"
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
                        handing.head, f"its watcher could not be begun: {why}", fix="Look at it"
                    )
                    return WatchedOutcome(plan, outcome.refused([failed]), began=False)
            finally:
                handing.close()
            self.say(
                f"{handing.head} watches it, and begins further attempts; it is {whose.user}'s own launch, without root"
            )
            return self.until_it_runs(plan)

    def until_it_runs(self, plan: LaunchPlan) -> WatchedOutcome:
        """Somebody who interrupts meanwhile ends it."""

        def follow(watcher: Watched) -> Word | None:
            found = watcher.follow(lambda word: word.running or self.interruption.came)
            return self.ended(watcher) if found and self.interruption.came and not found.over else found

        return self.seen(plan, follow)

    # ------------------------------------------------------------ attached to, or ended

    def attach(self, plan: LaunchPlan) -> WatchedOutcome:
        """See it through. An interruption leaves it as it is."""
        with self.interruption:
            return self.seen(plan, lambda watcher: watcher.follow(lambda _word: self.interruption.came))

    def stop(self, plan: LaunchPlan) -> WatchedOutcome:
        """End its watcher first, which ends the attempt that runs: so no other one begins."""
        with self.interruption:
            return self.seen(plan, self.ended)

    def seen(self, plan: LaunchPlan, follow: Callable[[Watched], Word | None]) -> WatchedOutcome:
        """Return the outcome after the watcher of this plan was followed."""
        watcher = self.watched(plan)
        try:
            return self.outcome(plan, follow(watcher))
        except NodeError as problem:
            return WatchedOutcome(plan, why=str(problem))
        finally:
            watcher.close()

    def ended(self, watcher: Watched) -> Word | None:
        """Raises NodeError."""
        if not (word := watcher.word()).over and (why := watcher.end()):
            raise NodeError(f"its watcher could not be asked to end: {why}", reachable=True)
        if word.over:
            return word
        self.say(f"The watcher on {watcher.head} was asked to end the launch")
        seconds = self.settings.options.stop_timeout + self.settings.options.failure_timeout + STOPPING_SLACK
        return watcher.follow(lambda _word: False, seconds)

    # ------------------------------------------------------------ what came of it

    def outcome(self, plan: LaunchPlan, word: Word | None) -> WatchedOutcome:
        if word is None:
            return WatchedOutcome(plan, why="its watcher did not end in time")
        if not word.known and not word.alive:
            return WatchedOutcome(plan, why="nothing is known of its watcher there, as after a restart of the node")
        plans = [found for one in word.attempts if (found := self.plan_of(one, plan))]
        newest = plans[-1] if plans else plan
        if word.verdict is None and not word.alive:
            return WatchedOutcome(newest, plans=plans, why="it has ended without a word on how the launch ended")
        return WatchedOutcome(newest, word.verdict, plans, word.history, running=word.verdict is None, left=word.left)

    def plan_of(self, attempt: Mapping[str, Any], first: LaunchPlan) -> LaunchPlan | None:
        """The plan of an attempt as its watcher reports it, which is of the first one's user; None where it cannot be
        followed, which is said."""
        found = unpacked(attempt["plan"])
        try:
            run_dir = str(found["nodes"][0]["run_dir"])
        except (TypeError, KeyError, IndexError):
            run_dir = ""
        owner = first.user if first.is_own else ""
        why = usable(found, attempt["launch_id"], run_dir, self.nodes, owner)
        plan = None if why else LaunchPlan.read(found)
        if plan and self.is_another(plan, first):
            why = "a launch of this name is kept here, and it is another one"
        if why:
            self.say(f"nothing of attempt {attempt['number']} ({attempt['launch_id']}) is brought here: {why}")
            return None
        return plan

    def is_another(self, plan: LaunchPlan, first: LaunchPlan) -> bool:
        """Whether the folder of this attempt would be that of a launch which the watcher did not begin."""
        folder = self.folder / plan.launch_id
        kept = kept_plan(folder)
        is_kept = (folder / "plan.json").exists()
        return plan.watched != first.watched or (is_kept and (kept is None or kept.watched != first.watched))

    def wait_for_leases(self, plan: LaunchPlan) -> None:
        """Until what a watcher that is gone had begun has certainly ended."""
        seconds = leases_over(len(plan.nodes), self.settings.options)
        self.say(f"waits {seconds:.0f} s, until what its watcher had begun has certainly ended (its lease)")
        until = time.monotonic() + seconds
        with self.interruption:
            while time.monotonic() < until and not self.interruption.came:
                time.sleep(0.1)

    def watched(self, plan: LaunchPlan) -> Watched:
        known = plan.watched or {"node": plan.head.node, "launch_id": plan.launch_id}
        watcher = watched.WatcherPlace(plan.user, known["node"], str(self.folder), self.nodes)
        return Watched(known["launch_id"], self.connect(known["node"]), self.quote, watcher)


def runs_detached(plan: LaunchPlan) -> Verdict:
    return outcome.judge(LaunchRecord(plan, Decision(Ending.DETACHED, "left to its watcher")), "")
