"""Shows the progress of a running launch, in a terminal as a line that is redrawn, otherwise as plain lines."""

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

PLAIN_PAUSE = 5.0  # seconds between two plain progress lines
LINES_PER_SECOND = 20  # of a rank's output; the logs are complete
WIDEST = 1000  # characters of a line
ROOM = 500  # lines in the queue
END = 2.0  # seconds to wait for the terminal at the end of a launch


def parent_has_terminal() -> bool:
    """Return whether the parent process, ansible-playbook, prints to a terminal. Workers have no terminal output."""
    try:
        target = Path(f"/proc/{os.getppid()}/fd/1").readlink()
    except OSError:
        return False
    return str(target).startswith(("/dev/pts/", "/dev/tty", "/dev/console"))


def is_number(value: Any) -> bool:
    """Return whether the value is a number that fits in a line. Integers can have any number of digits."""
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**15)


class Progress:
    """Shows progress in a separate thread, so that a hanging terminal does not block the launch."""

    def __init__(self, display: Display, *, show_rank: int | None) -> None:
        """show_rank: the rank whose output is shown live, or None."""
        self.display = display
        self.show_rank = show_rank
        self.live = parent_has_terminal()
        self.drawn = False
        self.last_plain = -PLAIN_PAUSE
        self.second = 0
        self.in_second = 0
        self.left_out = 0
        self.not_shown = 0
        # If ansible-playbook is gone, no process reads the output.
        self.aside = Aside("terminal", ROOM, lambda _exc: None)

    def say(self, sentence: str) -> None:
        """Show a sentence, which can contain text from a node."""
        self.show(partial(self.line, sentence))

    def line(self, text: str) -> None:
        self.clear()
        self.display.display(f"  {text}")

    def show(self, draw: Callable[[], None]) -> None:
        if self.not_shown:
            more = f"... {self.not_shown} lines were skipped because the terminal did not accept output"
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
                self.say(f"[rank {rank}] ... {self.left_out} more lines in the log")
            self.second, self.in_second, self.left_out = now, 0, 0
        self.in_second += 1
        if self.in_second > LINES_PER_SECOND:
            self.left_out += 1
        else:
            self.say(f"[rank {rank}] {line if len(line) <= WIDEST else line[:WIDEST] + ' ...'}")

    def step(self, event: dict[str, Any]) -> None:
        """Show {step, steps, loss, samples_per_second}. Fields that are not numbers are ignored."""
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
        """Show the remaining output, if the terminal accepts it."""
        self.aside.do(self.clear)
        self.aside.wait(END)
