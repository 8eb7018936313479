"""Follows the output of the ranks of a launch. Stores nothing and renews no lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.launch.answers import reader
from muster.launch.lines import Lines
from muster.verdict.reading import UnusableError

from .elsewhere import is_own

if TYPE_CHECKING:
    from collections.abc import Callable

    from muster.launch.planned import LaunchPlan
    from muster_controller.nodes.messages import Messages, NodeReply

TAIL = 4096  # bytes of each log that are shown first
LIMIT = 256 * 1024  # bytes of one response
WAIT = 2.0  # seconds that a node waits for new output
PAUSE = 0.5
IDENTITY_SECONDS = 20.0
MOST_FAILED = 5  # consecutive invalid responses of a node
ALL = -1


class Following:
    def __init__(self, plan: LaunchPlan, messages: Messages, say: Callable[[str], None], rank: int) -> None:
        """rank: the rank whose output is shown, or ALL."""
        self.plan = plan
        self.messages = messages
        self.say = say
        self.rank = rank
        self.entries = {entry.node: entry for entry in plan.nodes if rank == ALL or rank in entry.ranks}
        self.read = reader(plan.ranks)
        self.offsets: dict[str, dict[str, int]] = {name: {} for name in self.entries}
        self.lines: dict[tuple[str, str], Lines] = {}
        self.failed = dict.fromkeys(self.entries, 0)
        self.own: dict[str, bool] = {}
        self.over: set[str] = set()

    def follow(self, give_up: Callable[[], bool]) -> bool:
        """Show output until the launch has finished on these nodes or the user stops. Return whether it has
        finished."""
        if not self.entries:
            self.say(f"Launch {self.plan.launch_id} has no rank {self.rank}")
            return False
        for name in self.entries:
            self.messages.ask(name, "identity", {})
        known = self.messages.gather("identity", self.entries, IDENTITY_SECONDS, lambda _: None, give_up)
        self.own = {name: is_own(answer.data) for name, answer in known.items() if isinstance(answer.data, dict)}
        left = set(self.own)
        for name in self.entries:
            if name not in left:
                self.say(f"{name}: {known[name].error if name in known else 'no response'}")
        for name in left:
            self.ask(name)
        while left and not give_up():
            answer = self.messages.next(0.2)
            if answer is not None and answer.verb == "follow" and answer.node in left and not self.take(answer):
                left.discard(answer.node)
        return self.over == set(self.entries)

    def ask(self, name: str, delay: float = 0.0) -> None:
        request = {
            "launch_id": self.plan.launch_id,
            "run_dir": self.entries[name].run_dir,
            "offsets": self.offsets[name],
            "tail": TAIL,
            "limit": LIMIT,
            "wait": WAIT,
            "own": self.own[name],
        }
        self.messages.ask(name, "follow", request, privileged=not self.own[name], delay=delay)

    def take(self, answer: NodeReply) -> bool:
        """Show the received output. Return whether more output can follow."""
        name, data = answer.node, answer.data
        try:
            logs = self.read(name, "logs", data)[0]["logs"] if data is not None else {}
        except UnusableError:
            data = None
        if data is None:
            self.failed[name] += 1
            if self.failed[name] >= MOST_FAILED:
                self.say(f"{name}: {answer.error or 'invalid responses'}")
                return False
            self.ask(name, PAUSE * 4)
            return True
        self.failed[name] = 0
        offsets = data.get("offsets")
        known = self.offsets[name] or {
            key: value
            for key, value in (offsets.items() if isinstance(offsets, dict) else ())
            if isinstance(value, int)
        }
        self.offsets[name] = {**known, **{key: part["offset"] for key, part in logs.items()}}
        for key, part in logs.items():
            self.show(name, key, part["text"])
        if data.get("over") is True and not any(part["more"] for part in logs.values()):
            self.over.add(name)
            return False
        self.ask(name, PAUSE)
        return True

    def show(self, name: str, key: str, text: str) -> None:
        local = key.partition("/")[0]
        number = self.entries[name].ranks[int(local)] if local.isdecimal() else None
        if self.rank not in (ALL, number):
            return
        who = f"rank {number}" if number is not None else f"{name} torchrun"
        for line in self.lines.setdefault((name, key), Lines()).take(text):
            if line.strip():
                self.say(f"[{who}] {line}")
