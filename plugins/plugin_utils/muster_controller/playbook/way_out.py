"""The one way out to the terminal: Ansible's Display, which makes every text printable before it is written.

Results, warnings, diffs, verbose lines, prompts and what workers send all pass `Display.display`, whichever callback
formats them. A caller need not know which part of a text came from a node.
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
    """Text with control sequences of our own. What it shows of others has to be printable already."""

    __slots__ = ()


@contextmanager
def own_colors() -> Iterator[None]:
    """Keep the colours in what this thread displays: for text of Ansible that shows nothing of nodes."""
    token = KEEPS_COLORS.set(True)
    try:
        yield
    finally:
        KEEPS_COLORS.reset(token)


def shown(text: str) -> str:
    """Return the text as it may be written to the terminal."""
    if isinstance(text, Drawn):
        return text
    # Ansible shows both ends of a line as one; a carriage return anywhere else would overwrite the line.
    text = text.replace("\r\n", "\n")
    if not KEEPS_COLORS.get():
        return printable(text)
    return "".join(part if number % 2 else printable(part) for number, part in enumerate(COLOR.split(text)))


class PrintableDisplay(Display):
    """Ansible's Display, and the same object: `use` gives the existing one this class."""

    def display(self, msg: str, *args: Any, **kwargs: Any) -> None:
        super().display(shown(msg) if isinstance(msg, str) else msg, *args, **kwargs)
        if not self._final_q:  # a worker sends it to ansible-playbook
            # A file or a pipe gets each line at once, as a terminal does; one that takes no more is not noticed here.
            with suppress(OSError):
                sys.stdout.flush()

    def _log(self, msg: str, *args: Any, **kwargs: Any) -> None:
        """The log file, which people read in a terminal; it takes no colours either."""
        super()._log(printable(msg), *args, **kwargs)

    def note_foreign(self, commands: list[str]) -> None:
        """Have ansible-playbook know them, which hears of them before it gets the worker's result."""
        if self._final_q:
            self._final_q.send_display(self.note_foreign.__name__, commands)
        else:
            FOREIGN.update(commands)


def use() -> None:
    """Make what this process displays printable from here on, and so what its workers display."""
    display = Display()
    if not isinstance(display, PrintableDisplay):
        display.__class__ = PrintableDisplay
        TELL.append(lambda commands: cast("PrintableDisplay", display).note_foreign(commands))
