"""What a person sees of a running launch: a line that is redrawn in a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ansible.utils.display import Display

PLAIN_PAUSE = 5.0  # seconds between two progress lines that stay
LINES_PER_SECOND = 20  # of a rank's own output; the logs hold all of it


def parent_has_terminal() -> bool:
    """Whether ansible-playbook prints to a terminal: its workers' own output goes nowhere, so look at the parent's."""
    try:
        target = Path(f"/proc/{os.getppid()}/fd/1").readlink()
    except OSError:
        return False
    return str(target).startswith(("/dev/pts/", "/dev/tty", "/dev/console"))


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


class Progress:
    def __init__(self, display: Display, *, show_rank: int | None) -> None:
        """show_rank: the rank whose own output is shown as it comes; None for none."""
        self.display = display
        self.show_rank = show_rank
        self.live = parent_has_terminal()
        self.drawn = False
        self.last_plain = 0.0
        self.second = 0
        self.in_second = 0
        self.left_out = 0

    def say(self, sentence: str) -> None:
        self.clear()
        self.display.display(f"  {sentence}")

    def on_line(self, rank: int, stream: str, line: str) -> None:
        if stream == "event":
            event = json.loads(line)
            if event.get("event") == "step":
                self.step(event)
        elif rank == self.show_rank and line.strip():
            self.output(rank, line)

    def output(self, rank: int, line: str) -> None:
        now = int(time.time())
        if now != self.second:
            if self.left_out:
                self.say(f"[rank {rank}] ... {self.left_out} lines more, in its log")
            self.second, self.in_second, self.left_out = now, 0, 0
        self.in_second += 1
        if self.in_second > LINES_PER_SECOND:
            self.left_out += 1
        else:
            self.say(f"[rank {rank}] {line}")

    def step(self, event: dict[str, Any]) -> None:
        """Show {step, steps, loss, samples_per_second}; fields that a script does not send as numbers are left out."""
        steps = f"/{event['steps']}" if "steps" in event else ""
        text = f"step {event.get('step', '?')}{steps}"
        if is_number(event.get("loss")):
            text += f"   loss {event['loss']:.3f}"
        if is_number(event.get("samples_per_second")):
            text += f"   {event['samples_per_second']:.0f} samples/s"
        last = event.get("step") == event.get("steps")
        if self.live:
            self.clear()
            self.display.display(f"  {text}" + ("\n" if last else ""), newline=False, screen_only=True)
            self.drawn = not last
        elif last or time.time() - self.last_plain > PLAIN_PAUSE:
            self.last_plain = time.time()
            self.display.display(f"  {text}")

    def clear(self) -> None:
        if self.drawn:
            self.display.display("\r\x1b[2K", newline=False, screen_only=True)
            self.drawn = False
