"""What a person sees of a running launch: a line that is redrawn in a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .aside import Aside
from .way_out import Drawn

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible.utils.display import Display

PLAIN_PAUSE = 5.0  # seconds between two progress lines that stay
LINES_PER_SECOND = 20  # of a rank's own output; the logs hold all of it
WIDEST = 1000  # characters of such a line
ROOM = 500  # lines that wait to be shown
END = 2.0  # seconds that the end of a launch waits for the terminal


def parent_has_terminal() -> bool:
    """Whether ansible-playbook prints to a terminal: its workers' own output goes nowhere, so look at the parent's."""
    try:
        target = Path(f"/proc/{os.getppid()}/fd/1").readlink()
    except OSError:
        return False
    return str(target).startswith(("/dev/pts/", "/dev/tty", "/dev/console"))


def is_number(value: Any) -> bool:
    """Whether a line can show it: an integer may have as many digits as somebody types."""
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**15)


class Progress:
    """Shows what there is to see in a thread of its own: a terminal that takes nothing more holds nobody up."""

    def __init__(self, display: Display, *, show_rank: int | None) -> None:
        """show_rank: the rank whose own output is shown as it comes; None for none."""
        self.display = display
        self.show_rank = show_rank
        self.live = parent_has_terminal()
        self.drawn = False
        self.last_plain = -PLAIN_PAUSE
        self.second = 0
        self.in_second = 0
        self.left_out = 0
        self.not_shown = 0
        # Without ansible-playbook there is nobody left who reads.
        self.aside = Aside("terminal", ROOM, lambda _exc: None)

    def say(self, sentence: str) -> None:
        """Show what may be a node's own words."""
        self.show(partial(self.line, sentence))

    def line(self, text: str) -> None:
        self.clear()
        self.display.display(f"  {text}")

    def show(self, draw: Callable[[], None]) -> None:
        if self.not_shown:
            more = f"... {self.not_shown} lines were not shown here: the terminal took none"
            if not self.aside.do(partial(self.line, more)):
                self.not_shown += 1
                return
            self.not_shown = 0
        if not self.aside.do(draw):
            self.not_shown += 1

    def on_line(self, rank: int, stream: str, line: str) -> None:
        if stream == "event":
            event = json.loads(line)
            if event.get("event") == "step":
                self.show(partial(self.step, event))
        elif rank == self.show_rank and line.strip():
            self.output(rank, line)

    def output(self, rank: int, line: str) -> None:
        now = int(time.monotonic())
        if now != self.second:
            if self.left_out:
                self.say(f"[rank {rank}] ... {self.left_out} lines more, in its log")
            self.second, self.in_second, self.left_out = now, 0, 0
        self.in_second += 1
        if self.in_second > LINES_PER_SECOND:
            self.left_out += 1
        else:
            self.say(f"[rank {rank}] {line if len(line) <= WIDEST else line[:WIDEST] + ' ...'}")

    def step(self, event: dict[str, Any]) -> None:
        """Show {step, steps, loss, samples_per_second}; fields that a script does not send as numbers are left out."""
        steps = f"/{event['steps']}" if is_number(event.get("steps")) else ""
        text = f"step {event['step'] if is_number(event.get('step')) else '?'}{steps}"
        if is_number(event.get("loss")):
            text += f"   loss {event['loss']:.3f}"
        if is_number(event.get("samples_per_second")):
            text += f"   {event['samples_per_second']:.0f} samples/s"
        last = event.get("step") == event.get("steps")
        if self.live:
            self.clear()
            self.display.display(f"  {text}" + ("\n" if last else ""), newline=False, screen_only=True)
            self.drawn = not last
        elif last or time.monotonic() - self.last_plain > PLAIN_PAUSE:
            self.last_plain = time.monotonic()
            self.display.display(f"  {text}")

    def clear(self) -> None:
        if self.drawn:
            self.display.display(Drawn("\r\x1b[2K"), newline=False, screen_only=True)
            self.drawn = False

    def finish(self) -> None:
        """Show what is still to be shown, if the terminal takes it."""
        self.aside.do(self.clear)
        self.aside.wait(END)
