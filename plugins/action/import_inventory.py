"""Writes a new inventory from a list of nodes.

Takes the nodes from one of node, nodes, nodes_file and ssh_config, and resolves names without an address. Writes
inventory/NAME/hosts.yml and copies the options of inventory/lab into the same folder. Never overwrites existing files.
Reports all problems of the list at once, or the next steps. Runs on the controller and contacts no node.

outcome: The result in one sentence.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ansible.errors import AnsibleActionFail

from muster.inventory.model import ip
from muster.onboard import imported, request
from muster.verdict.commands import playbook
from muster.verdict.words import plural
from muster_controller.members import newcomers, onboarding
from muster_controller.network.first_contact import read
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.playbook.command_line import short
from muster_controller.playbook.terminal import terminal
from muster_controller.playbook.variables import project_root
from muster_node.tools import files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SAMPLE = "inventory/lab/group_vars"


class ActionModule(ControllerAction):
    ROLE = "onboard"
    OPTIONS: ClassVar[Options] = {
        # Name of the new inventory, a folder in inventory/.
        "name": {"type": "str", "default": ""},
    }

    def work(self) -> dict[str, Any]:
        nodes, problems = self._nodes()
        name = self.options["name"].strip()
        problems = [*imported.name_problems(name), *problems]
        if problems:
            raise refused(problems)
        # An installed command keeps inventories in its user's folder.
        folder = Path(os.environ.get("MUSTER_INVENTORIES") or project_root() / "inventory") / name
        try:
            texts = {"hosts.yml": imported.text(nodes, self._source()), **sample()}
        except ValueError as problem:
            raise refused([str(problem)]) from None
        before = {file: read(str(folder / file)) for file in texts}
        changed = before != texts
        if changed and os.path.lexists(folder):
            raise refused([f"{short(str(folder))} already exists. Set another name with -e import_to."])
        check = bool(self._task.check_mode)
        if changed and not check:
            write(folder, texts)
        shown = short(str(folder))
        there = replace(terminal(), inventories=(shown,))
        commands = (there.text(one) for one in (playbook("playbooks/trust.yml"), playbook("playbooks/inspect.yml")))
        return {
            "changed": changed,
            "diff": [
                {"before": before[file], "after": texts[file], "before_header": file, "after_header": file}
                for file in texts
                if before[file] != texts[file]
            ],
            "msg": imported.report(shown, nodes, *commands, check=check),
            "outcome": f"{shown} has {plural(len(nodes), 'node')}; check its hosts.yml, and then pin the host keys",
        }

    def _nodes(self) -> tuple[Sequence[Mapping[str, Any]], list[str]]:
        asked, problems = onboarding.asked(self.options)
        places = [one.address or one.name for one in asked]
        nodes, more = request.resolved(asked, newcomers.looked_up(place for place in places if not ip(place)))
        return nodes, [*problems, *more, *imported.node_problems(nodes)]

    def _source(self) -> str:
        """Return the source of the nodes, for the first line of the file."""
        for way in ("ssh_config", "nodes_file"):
            if self.options[way]:
                return " ".join(str(self.options[way]).split())
        return "a list of names"


def refused(problems: Sequence[str]) -> AnsibleActionFail:
    said = "\n".join(f"- {problem}" for problem in problems)
    return AnsibleActionFail(f"Nothing was written and no node was contacted.\n{said}")


def sample() -> dict[str, str]:
    """Return the option files of the sample inventory, which are copied into a new inventory."""
    folder = project_root() / SAMPLE
    return {f"group_vars/{path.name}": path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.yml"))}


def write(folder: Path, texts: Mapping[str, str]) -> None:
    """Create the folder atomically: write a temporary folder next to it and rename it. Never overwrites a folder."""
    beside = Path(tempfile.mkdtemp(prefix=".import.", dir=folder.parent))
    try:
        (beside / "group_vars").mkdir()
        for file, text in texts.items():
            files.replace(str(beside / file), text.encode(), mode=0o644)
        beside.chmod(0o755)
        beside.rename(folder)
    except OSError as problem:
        shutil.rmtree(beside)
        raise AnsibleActionFail(f"{short(str(folder))} cannot be written ({problem.strerror}).") from None
