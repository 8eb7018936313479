"""Reserves the resources of a launch on all nodes or on none, before the ranks start.

A launch that waits for another launch holds no resources while it waits, so that waiting launches cannot deadlock.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from muster.launch.endings import Ending
from muster.launch.occupied import TAKEN, taken
from muster.launch.reservation import Move, decide
from muster.launch.watch import FOREVER, Decision

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from muster.launch.preflight import Prepared
    from muster.launch.reservation import Reserved, ReserveRequest
    from muster.verdict.finding import Finding
    from muster_controller.nodes.messages import Messages, NodeReply
    from muster_controller.playbook.interruption import Interruption

    from .settings import Settings

RESERVE_LEASE = 60.0  # seconds that a node keeps slots for a launch that has not started, without a renewal
ANSWER_TIMEOUT = 40.0  # nothing is running yet that a slow node could delay
TRIES_FOR = 60.0  # seconds for units to start, and for other launches to release their slots
WAIT = 0.5  # seconds that a node waits for the slots before it reports their holders
# Seconds between two checks for free resources. The interval grows, because each check runs as root.
PAUSE, LONGEST_PAUSE = 2.0, 15.0


class Reserving:
    def __init__(
        self,
        launch_id: str,
        settings: Settings,
        messages: Messages,
        say: Callable[[str], None],
        interruption: Interruption,
    ) -> None:
        self.launch_id = launch_id
        self.settings = settings
        self.messages = messages
        self.say = say
        self.interruption = interruption
        self.findings: list[Finding] = []  # why the launch was rejected
        self.waited_for: set[tuple[str, str]] = set()
        self.pause = PAUSE
        self.until = time.monotonic() + (settings.options.wait_timeout or FOREVER)

    @property
    def waits(self) -> bool:
        return self.settings.options.wait and time.monotonic() < self.until and not self.interruption.came

    def prepared(self, look: Callable[[], Prepared]) -> Prepared:
        """Inspect the nodes repeatedly until nothing blocks the launch, or until a problem occurs that waiting cannot
        resolve."""
        while True:
            prepared = look()
            fails = [finding for finding in prepared.findings if finding.status == "fail"]
            if not fails or any(finding.id != TAKEN.id for finding in fails) or not self.waits:
                return prepared
            self.wait_for(fails)

    def wait_for(self, fails: Sequence[Finding]) -> None:
        """Wait for one interval. If the holders of the resources have changed, report them."""
        for finding in fails:
            if (finding.node, finding.observed) not in self.waited_for:
                self.say(f"waiting: {finding.node}: {finding.summary}")
        self.waited_for = {(finding.node, finding.observed) for finding in fails}
        wake = min(time.monotonic() + self.pause, self.until)
        self.pause = min(self.pause * 1.2, LONGEST_PAUSE)
        while time.monotonic() < wake and not self.interruption.came:
            time.sleep(0.1)

    def reserve(self, seen: Mapping[str, Reserved | None]) -> Decision | None:
        """Reserve the slots on all nodes and return None. The first look starts the ranks afterwards. seen: the results
        of start."""
        if self.settings.options.shared:
            return None
        taking, tries_until = True, time.monotonic() + TRIES_FOR
        while not self.interruption.came:
            known = {name: one for name, one in seen.items() if one is not None}
            if any(one["over"] for one in known.values()):
                return None  # the watch reports the reason
            move = decide(self.launch_id, [one["held"] for one in known.values()])
            if taking and move is Move.BEGIN:
                return None
            if move is Move.YIELD:
                fails = self.refusal(known)
                if not self.waits:
                    self.findings += fails
                    return Decision(Ending.TAKEN, fails[0].summary, fails[0].node)
                if not taking:
                    self.wait_for(fails)
                taking, tries_until = False, time.monotonic() + TRIES_FOR
            elif time.monotonic() > tries_until:
                return Decision(Ending.FAILED, f"its GPU and CPU slots could not be reserved within {TRIES_FOR:.0f} s")
            else:
                taking = True
            answers = self.ask(known, take=taking)
            missing = next((name for name in known if name not in answers or answers[name].data is None), None)
            if missing:
                why = answers[missing].error if missing in answers else "no response"
                return Decision(Ending.NODE, why, missing)
            seen = {name: answer.data for name, answer in answers.items()}
        return self.interruption.decision()

    def refusal(self, seen: Mapping[str, Reserved]) -> list[Finding]:
        found: list[Finding] = []
        for name, one in seen.items():
            others = {
                seat: [holder for holder in holders if not holder["ours"]] for seat, holders in one["held"].items()
            }
            found += taken(name, others, begun_here=self.settings.begun_here)
        return found

    def ask(self, nodes: Collection[str], *, take: bool) -> dict[str, NodeReply]:
        request: ReserveRequest = {
            "launch_id": self.launch_id,
            "take": take,
            "wait": WAIT,
            "lease": RESERVE_LEASE,
        }
        for name in nodes:
            self.messages.ask(name, "reserve", {**request}, privileged=True)
        return self.messages.gather("reserve", nodes, ANSWER_TIMEOUT, lambda _: None, lambda: self.interruption.came)
