"""Screens that a worker of Ansible shows: once, or again and again in one place of a terminal."""

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

WIDTH = 120  # where there is no terminal, and no COLUMNS
NARROWEST, WIDEST = 40, 1000
HOME, REST_OF_LINE, REST_OF_SCREEN, CLEAR = "\x1b[H", "\x1b[K", "\x1b[J", "\x1b[2J"
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"  # the cursor


def size() -> tuple[int, int]:
    """Columns and lines of the terminal that ansible-playbook prints to; no lines where it prints to none."""
    given = os.environ.get("COLUMNS", "")
    columns, lines = int(given) if given.isdecimal() else WIDTH, 0
    if parent_has_terminal():
        with suppress(OSError):
            # The worker is in a session of its own, and this terminal is not to become its own.
            handle = os.open(f"/proc/{os.getppid()}/fd/1", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
            try:
                columns, lines = os.get_terminal_size(handle)
            finally:
                os.close(handle)
    return max(NARROWEST, min(columns, WIDEST)), lines


class Screens:
    """Shows each screen in the place of the one before, or below it where nothing can be redrawn."""

    def __init__(self, display: Display, *, again: bool) -> None:
        """again: whether there will be more than one."""
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
            # In one piece, and only where something was before: so that nothing flickers.
            start = HOME if self.drawn else f"{HIDE}{CLEAR}{HOME}"
            whole = "".join(f"{line}{REST_OF_LINE}\n" for line in shown)
            self.display.display(Drawn(f"{start}{whole}{REST_OF_SCREEN}"), newline=False, screen_only=True)
        self.drawn += 1

    def end(self) -> None:
        if self.redraws and self.drawn:
            self.display.display(Drawn(SHOW), newline=False, screen_only=True)


def end_gently() -> None:
    """In ansible-playbook itself, from here on: Ctrl-C ends what a worker shows, and the run goes on to its own end. A
    second one ends all, as ever."""
    before = signal.getsignal(signal.SIGINT)

    def pass_on(_number: int, _frame: Any) -> None:
        signal.signal(signal.SIGINT, before)
        for worker in multiprocessing.active_children():
            with suppress(OSError):
                os.kill(worker.pid or 0, signal.SIGINT)

    signal.signal(signal.SIGINT, pass_on)
    # Whoever reads the screens through a pipe sees each when it comes.
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure:
        reconfigure(line_buffering=True)
