"""Writes an inventory folder with which other users can launch.

Writes hosts.yml, known_hosts and README.md into a folder. Other users use the folder as their inventory, on their own
machine and with their own checkout of Muster. The folder contains the nodes, their connection settings, their pinned
host keys, and the variables that a launch needs, with templates evaluated. It contains no user names, keys or passwords
of the administrator, and no other values of the inventory. Addresses, ports and jump hosts are resolved with the
administrator's ssh configuration, which other users therefore do not need. Runs on the controller and contacts no node.
Fails if a node has no pinned host key.

folder: Path of the folder on the controller.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import yaml
from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

from muster.share import HEAD, SharedNode, inventory, known_hosts_text, problems, readme, warnings
from muster.verdict.words import plural
from muster_controller.network.first_contact import read, road_to
from muster_controller.network.sharing import in_the_way, shared, write
from muster_controller.nodes.connection import connect
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.playbook.command_line import short
from muster_controller.playbook.variables import load_roles, node_variables, project_root, read_node

OTHERS = ("workbench_nodes",)


class ActionModule(ControllerAction):
    """Reads the inventory and the administrator's SSH configuration, and contacts no node."""

    OPTIONS: ClassVar[Options] = {
        # Target folder.
        "folder": {"type": "str", "required": True},
        # known_hosts file of the inventory.
        "known_hosts": {"type": "path", "required": True},
    }

    def work(self) -> dict[str, Any]:
        if not self.options["folder"].strip():
            raise AnsibleActionFail("No folder was set: add -e share_to=FOLDER.")
        named = project_root() / Path(self.options["folder"]).expanduser()
        folder = named.resolve()
        nodes = [self._node(name) for name in self.task_vars["groups"]["gpu_nodes"]]
        found = [*problems(nodes), *in_the_way(named)]
        if found:
            raise AnsibleActionFail("Nothing was written. " + "\n".join(found))
        texts = {
            "hosts.yml": hosts_text(nodes),
            "known_hosts": known_hosts_text(nodes),
            "README.md": readme(nodes, folder.name),
        }
        return {
            **self._written(folder, texts),
            "folder": str(folder),
            "warnings": warnings(nodes),
            "outcome": f"{short(str(folder))} contains {plural(len(nodes), 'node')} and no secrets; its README.md"
            " explains how to launch with it",
        }

    def _node(self, name: str) -> SharedNode:
        values = node_variables(self.task_vars, self._templar, self._loader, name)
        values |= read_node(self.task_vars, self._templar, load_roles(self._loader, "workbench"), name, OTHERS).values
        node = connect(self, name, self.task_vars)
        own = self.task_vars["hostvars"].raw_get(name)
        if "ansible_python_interpreter" in own:
            values["ansible_python_interpreter"] = node.interpreter
        project = str(Path(self.options["known_hosts"]).resolve())
        return shared(road_to(name, node.connection), values, project)

    def _written(self, folder: Path, texts: dict[str, str]) -> dict[str, Any]:
        before = {name: read(str(folder / name)) for name in texts}
        changed = [name for name in texts if texts[name] != before[name]]
        if self._task.check_mode:
            for name, text in texts.items():
                Display().display(f"{folder / name}:\n{text}")
        elif changed:
            write(folder, {name: texts[name] for name in changed})
        shown = [
            {"before": before[name], "after": texts[name], "before_header": name, "after_header": name}
            for name in changed
        ]
        return {"changed": bool(changed), "diff": shown}


def hosts_text(nodes: list[SharedNode]) -> str:
    plain = json.loads(json.dumps(inventory(nodes)))  # without the tags that Ansible adds to values
    return HEAD + str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=120))
