"""The only output path to the terminal: Ansible's Display, changed to make every text printable before it is written.

With any callback, results, warnings, diffs, verbose lines, prompts and output of workers all pass through
`Display.display`. Callers therefore do not need to know which parts of a text are from a node.
"""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, cast

from ansible.utils.display import Display

from muster.verdict.printable import printable

from .foreign import FOREIGN, TELL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from muster.road.waiting import NodeActivity

COLOR = re.compile(r"(\x1b\[[0-9;]*m)")
KEEPS_COLORS: ContextVar[bool] = ContextVar("KEEPS_COLORS", default=False)


class Drawn(str):
    """Text with the project's own control sequences. Foreign parts must already be printable."""

    __slots__ = ()


@contextmanager
def own_colors() -> Iterator[None]:
    """Keep colors in the output of this thread. Only for text of Ansible that has no foreign parts."""
    token = KEEPS_COLORS.set(True)
    try:
        yield
    finally:
        KEEPS_COLORS.reset(token)


def shown(text: str) -> str:
    """Return the text in a form that is safe to write to the terminal."""
    if isinstance(text, Drawn):
        return text
    # Keep line ends with a carriage return. Elsewhere a carriage return would overwrite the line.
    text = text.replace("\r\n", "\n")
    if not KEEPS_COLORS.get():
        return printable(text)
    return "".join(part if number % 2 else printable(part) for number, part in enumerate(COLOR.split(text)))


class PrintableDisplay(Display):
    """The class that `use` assigns to Ansible's Display object.

    drawn: number of lines at the end of the terminal that the next output replaces. activities: what nodes do.
    """

    drawn = 0
    activities: ClassVar[dict[str, NodeActivity]] = {}

    def display(self, msg: str, *args: Any, **kwargs: Any) -> None:
        text = shown(msg) if isinstance(msg, str) else msg
        if self._final_q:  # a worker sends the text to ansible-playbook
            super().display(text, *args, **kwargs)
            return
        with self._lock:
            self.draw([])
            super().display(text, *args, **kwargs)
        # Flush each line to a file or pipe, as to a terminal. Errors are ignored here.
        with suppress(OSError):
            sys.stdout.flush()

    def draw(self, lines: Sequence[str]) -> None:
        """Replace the drawn lines at the end of the terminal."""
        with self._lock:
            if lines or self.drawn:
                erase = "\r\x1b[2K" + "\x1b[1A\x1b[2K" * (self.drawn - 1)
                text = Drawn(erase + "\n".join(map(printable, lines)))
                super().display(text, newline=False, screen_only=True)
            self.drawn = len(lines)

    def _log(self, msg: str, *args: Any, **kwargs: Any) -> None:
        """Write printable text without colors to the log file, which users also read in a terminal."""
        super()._log(printable(msg), *args, **kwargs)

    def note_foreign(self, commands: list[str]) -> None:
        """Register foreign commands in the process of ansible-playbook before it receives the result of the worker."""
        if self._final_q:
            self._final_q.send_display(self.note_foreign.__name__, commands)
        else:
            FOREIGN.update(commands)

    def note_activity(self, node: str, activity: NodeActivity | None) -> None:
        """Register in the process of ansible-playbook what a node does; None if that is unknown."""
        if self._final_q:
            self._final_q.send_display(self.note_activity.__name__, node, activity)
        elif activity is None:
            self.activities.pop(node, None)
        else:
            self.activities[node] = activity


def use() -> None:
    """Make all further output of this process and its workers printable."""
    display = Display()
    if not isinstance(display, PrintableDisplay):
        display.__class__ = PrintableDisplay
        TELL.append(lambda commands: cast("PrintableDisplay", display).note_foreign(commands))
