"""Watches all nodes of a running launch until the launch has finished or must be stopped.

module_utils/muster/launch/watch.py decides when and why a launch is stopped, and is called by a single thread. All
times are on the monotonic clock.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from muster.launch.endings import Ending
from muster.launch.standing import Standing
from muster.launch.watch import Decision, Watch

from .stopping import RANKS_HAVE

if TYPE_CHECKING:
    from collections.abc import Callable

    from muster.launch.messages import LookRequest, RanksEnd
    from muster.launch.planned import LaunchPlan, PlannedNode
    from muster.launch.watch import Limits, Pace
    from muster_controller.nodes.messages import Messages, NodeReply
    from muster_controller.playbook.interruption import Interruption

    from .node_reports import NodeReports

GRACE = 1.5  # after the first failure, for the other ranks to write their last output


class Watching:
    """Watches one launch. noticed: when the end of the launch was detected. notices: when silent nodes were
    reported."""

    def __init__(
        self,
        plan: LaunchPlan,
        pace: Pace,
        limits: Limits,
        lease: float,
        messages: Messages,
        reports: NodeReports,
        interruption: Interruption,
        say: Callable[[str], None],
        on_failure: Callable[[Decision], None] = lambda _: None,
        notice: float = 0.0,
        on_running: Callable[[], None] = lambda: None,
    ) -> None:
        """on_failure: called when a failure is detected, before anything is stopped. notice: time in seconds without
        progress until a message is shown; 0 disables the message. on_running: called once, when all ranks are
        running."""
        self.on_running = on_running
        self.launch_id = plan.launch_id
        self.entries = plan.by_node()
        self.pace = pace
        self.lease = lease
        self.messages = messages
        self.reports = reports
        self.interruption = interruption
        self.say = say
        self.limits = limits
        self.on_failure = on_failure
        self.watch = Watch({name: entry.nproc for name, entry in self.entries.items()}, time.monotonic(), limits)
        ranks = {name: entry.ranks for name, entry in self.entries.items()}
        self.standing = Standing(ranks, notice, time.monotonic(), self.launch_id)
        self.noticed = 0.0
        self.notices: list[float] = []

    def until_over(self) -> Decision:
        for entry in self.entries.values():
            self.look(entry, wait=0.0)
        decision: Decision | None = None
        give_up_at = 0.0
        running = False
        while True:
            self.take(self.messages.next(0.2))
            now = time.monotonic()
            if not running and self.watch.all_run(now):
                running = True
                self.on_running()
            for sentence in self.watch.notices(now):
                self.notices.append(now)
                self.say(sentence)
            for sentence in self.standing.notices(now) if decision is None else ():
                self.say(sentence)
            if self.interruption.came:
                left = Decision(Ending.DETACHED, "left running")
                return left if self.limits.attached else self.interruption.decision()
            if decision is None:
                decision = self.watch.decide(now)
                if decision is not None:
                    self.noticed = now
                    with self.reports.contained("snapshots"):
                        self.on_failure(decision)
                    if decision.ending is not Ending.FAILED:
                        return decision
                    # The rank that failed first is often reported later than its victims: wait for the other ranks.
                    give_up_at = now + GRACE
            elif now > give_up_at or self.watch.over:
                return (self.limits.attached and self.watch.decide(now)) or decision

    def take(self, answer: NodeReply | None) -> None:
        if answer is None or answer.verb != "look":
            return
        node = answer.node
        if answer.data is None:
            self.watch.no_answer(node, answer.error)
        else:
            # First update the watch, which renews the lease, then keep the data.
            self.watch.saw(node, answer.data, time.monotonic())
            self.standing.saw(node, answer.data.get("samples"), answer.data["logs"], time.monotonic())
            with self.reports.contained(node):
                self.reports.keep(answer)
                self.say_why_ranks_end(answer.data.get("ending"))
        if not self.watch.nodes[node].over:
            self.look(self.entries[node], wait=self.pace.wait, delay=self.pace.pause)

    def say_why_ranks_end(self, told: RanksEnd | None) -> None:
        if told:
            why = "The time limit was reached" if told["reason"] == "limit" else "A user stopped the launch"
            self.reports.note(f"{why}: SIGTERM was sent to the ranks, which {RANKS_HAVE.format(told['seconds'])}")

    def look(self, entry: PlannedNode, wait: float, delay: float = 0.0) -> None:
        request: LookRequest = {
            "launch_id": self.launch_id,
            "run_dir": entry.run_dir,
            "lease": self.lease,
            "wait": wait,
            "offsets": self.reports.logs.offsets(entry.node),
            "limit": self.pace.look_bytes,
            "sampled": self.standing.numbers[entry.node],
        }
        self.messages.ask(entry.node, "look", {**request}, delay=delay)
