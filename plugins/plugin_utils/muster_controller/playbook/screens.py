"""Shows screens from an Ansible worker, once or repeatedly in the same place of a terminal."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ansible import constants
from ansible.utils.color import stringc

from muster.verdict.printable import printable

from .progress import parent_has_terminal
from .way_out import Drawn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ansible.utils.display import Display

    from muster.status.screen import StatusLine

WIDTH = 120  # without a terminal and without COLUMNS
NARROWEST, WIDEST = 40, 1000
HOME, REST_OF_LINE, REST_OF_SCREEN, CLEAR = "\x1b[H", "\x1b[K", "\x1b[J", "\x1b[2J"
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"  # the cursor


def size() -> tuple[int, int]:
    """Return the columns and lines of ansible-playbook's terminal, with 0 lines if there is no terminal."""
    given = os.environ.get("COLUMNS", "")
    columns, lines = int(given) if given.isdecimal() else WIDTH, 0
    if parent_has_terminal():
        with suppress(OSError):
            # The worker has its own session. O_NOCTTY keeps this terminal from becoming its controlling terminal.
            handle = os.open(f"/proc/{os.getppid()}/fd/1", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
            try:
                columns, lines = os.get_terminal_size(handle)
            finally:
                os.close(handle)
    return max(NARROWEST, min(columns, WIDEST)), lines


class Screens:
    """Shows each screen in place of the previous one, or below it if redrawing is not possible."""

    def __init__(self, display: Display, *, again: bool) -> None:
        """again: whether more than one screen will be shown."""
        self.display = display
        self.redraws = again and parent_has_terminal()
        self.drawn = 0

    def show(self, lines: Sequence[StatusLine]) -> None:
        colours = {"ok": constants.COLOR_OK, "warn": constants.COLOR_WARN, "fail": constants.COLOR_ERROR}
        texts = [printable(line.text) for line in lines]
        shown = [
            stringc(text, colours[line.mark]) if line.mark else text for line, text in zip(lines, texts, strict=True)
        ]
        if not self.redraws:
            self.display.display(Drawn("\n".join([*([""] if self.drawn else []), *shown])))
        else:
            # One write that overwrites the old screen, to avoid flicker.
            start = HOME if self.drawn else f"{HIDE}{CLEAR}{HOME}"
            whole = "".join(f"{line}{REST_OF_LINE}\n" for line in shown)
            self.display.display(Drawn(f"{start}{whole}{REST_OF_SCREEN}"), newline=False, screen_only=True)
        self.drawn += 1

    def end(self) -> None:
        if self.redraws and self.drawn:
            self.display.display(Drawn(SHOW), newline=False, screen_only=True)


def end_gently() -> None:
    """Let the first Ctrl-C end only the worker's screen, so that ansible-playbook ends normally. A second Ctrl-C has
    its usual effect."""
    before = signal.getsignal(signal.SIGINT)

    def pass_on(_number: int, _frame: Any) -> None:
        signal.signal(signal.SIGINT, before)
        for worker in multiprocessing.active_children():
            with suppress(OSError):
                os.kill(worker.pid or 0, signal.SIGINT)

    signal.signal(signal.SIGINT, pass_on)
    # Readers of a pipe get each screen immediately.
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure:
        reconfigure(line_buffering=True)
