"""The only output path to the terminal: Ansible's Display, which makes every text printable before it is written.

Results, warnings, diffs, verbose lines, prompts and output of workers all pass through `Display.display`, with any
callback. Callers need not know which part of a text came from a node.
"""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

from ansible.utils.display import Display

from muster.verdict.printable import printable

from .foreign import FOREIGN, TELL

if TYPE_CHECKING:
    from collections.abc import Iterator

COLOR = re.compile(r"(\x1b\[[0-9;]*m)")
KEEPS_COLORS: ContextVar[bool] = ContextVar("KEEPS_COLORS", default=False)


class Drawn(str):
    """Text with the project's own control sequences. Foreign parts must already be printable."""

    __slots__ = ()


@contextmanager
def own_colors() -> Iterator[None]:
    """Keep colors in the output of this thread, for Ansible's text without foreign parts."""
    token = KEEPS_COLORS.set(True)
    try:
        yield
    finally:
        KEEPS_COLORS.reset(token)


def shown(text: str) -> str:
    """Return the text in a form that may be written to the terminal."""
    if isinstance(text, Drawn):
        return text
    # Keep line ends with a carriage return. Elsewhere a carriage return would overwrite the line.
    text = text.replace("\r\n", "\n")
    if not KEEPS_COLORS.get():
        return printable(text)
    return "".join(part if number % 2 else printable(part) for number, part in enumerate(COLOR.split(text)))


class PrintableDisplay(Display):
    """Ansible's Display object with another class; see `use`."""

    def display(self, msg: str, *args: Any, **kwargs: Any) -> None:
        super().display(shown(msg) if isinstance(msg, str) else msg, *args, **kwargs)
        if not self._final_q:  # a worker sends the text to ansible-playbook
            # Flush each line to a file or pipe, as to a terminal. Errors are ignored here.
            with suppress(OSError):
                sys.stdout.flush()

    def _log(self, msg: str, *args: Any, **kwargs: Any) -> None:
        """Write to the log file, which is read in a terminal too, without colors."""
        super()._log(printable(msg), *args, **kwargs)

    def note_foreign(self, commands: list[str]) -> None:
        """Register foreign commands in ansible-playbook before it receives the worker's result."""
        if self._final_q:
            self._final_q.send_display(self.note_foreign.__name__, commands)
        else:
            FOREIGN.update(commands)


def use() -> None:
    """Make the output of this process and its workers printable from now on."""
    display = Display()
    if not isinstance(display, PrintableDisplay):
        display.__class__ = PrintableDisplay
        TELL.append(lambda commands: cast("PrintableDisplay", display).note_foreign(commands))
