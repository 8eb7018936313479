"""The terminal in which the user will run the commands that this run prints; see muster.verdict.commands."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible import context

from muster.verdict.commands import COMMAND, NO_DOOR, Door, Terminal, quotes

from .command_line import inventories, other_options, playbooks, short
from .foreign import FOREIGN
from .variables import project_root

if TYPE_CHECKING:
    from collections.abc import Mapping

# Parts of a result that contain output of a node's programs.
OUTPUT = ("stdout", "stderr")


def terminal(options: Mapping[str, Any] | None = None) -> Terminal:
    """Return the terminal of this run. options: command line options to use instead of Ansible's."""
    given = context.CLIARGS if options is None else options
    return Terminal(
        prefix=_prefix(),
        inventories=inventories(given),
        folder="" if Path.cwd() == project_root() else f"{short(str(project_root()))}/",
        books=playbooks(given),
        options=other_options(given),
        asks_for_sudo=bool(given.get("become_ask_pass")),
        foreign=frozenset(FOREIGN),
        door=_door(),
    )


def _door() -> Door:
    """Return what muster_cli.command.door has written; empty for a run of ansible-playbook itself."""
    written = os.environ.get("MUSTER_DOOR", "")
    return Door(**json.loads(written)) if written else NO_DOOR


def typed(text: str, result: Mapping[str, Any] | None = None) -> str:
    """Return the text, with commands completed for this terminal. Text quoted from nodes stays unchanged."""
    if not COMMAND.search(text):
        return text
    said = result or {}
    return terminal().text(text, [*quotes(said), *(str(said[name]) for name in OUTPUT if said.get(name))])


def _prefix() -> str:
    program = Path(sys.argv[0]).absolute()
    if not program.name.startswith("ansible"):
        program = Path(sys.executable).with_name("ansible-playbook")  # started as a module, or in a test
    found = shutil.which("ansible-playbook")
    if found and Path(found).parent.resolve() == program.parent.resolve():
        return ""
    return f"{short(str(program.parent))}/" if program.exists() else ""
