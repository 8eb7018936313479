"""Validates the inventory on the controller. The rules are in module_utils/muster/inventory.

Reads the variables of the nodes in the group gpu_nodes, with the defaults of the role cluster. Fails with all problems
at once, each with its location and fix. Also validates variables given with -e or in a job file. If such a variable has
the prefix of Muster options, it must be an option; otherwise, the most similar option is suggested. Runs on the
controller and contacts no node.

msg: All problems, one sentence each.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ansible import context
from ansible.release import __version__ as ansible_version

from muster.inventory import CLUSTER_NAME, Inventory, InventoryNode, controller, job, problems, warnings
from muster_controller.diagnosis.rule_files import COMMANDS, FILES, read_rules
from muster_controller.inventory.origin import clear_secrets, written_at
from muster_controller.launch.job import open_secrets, places_of, read_run, unassigned, unusable_files
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.playbook.command_line import chosen_tags, playbooks, sentence, without_selection
from muster_controller.playbook.tags import unknown_tags
from muster_controller.playbook.terminal import terminal
from muster_controller.playbook.variables import controller_file, load_roles, project_root, read_node
from muster_controller.pytorch.environments import problems as problems_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ansible.parsing.dataloader import DataLoader
    from ansible.template import Templar

    from muster.inventory import Problem, Secret
    from muster_controller.playbook.variables import Roles

CONNECTION = ("ansible_host", "ansible_port", "ansible_connection")
# Rules compare these with options that always have a value, so their defaults are needed.
BESIDE = ("firewall_tight", "firewall_ephemeral_range", "firewall_launch_ports")
# Variables of this repository's own plays and of its sandbox, which nobody else sets.
INTERNAL = (
    *("cluster_validated", "cluster_leaving", "validate_connects", "validate_launches"),
    *("validate_every_node", "validate_every_task", "sandbox_dir", "sandbox_name", "sandbox_prefix"),
)

# First words of variables that Muster's plays set.
OWN_WORDS = ("ansible", "installed", "muster", "step", "trust")

VERSIONS = (tuple(int(number) for number in ansible_version.split(".")[:2]), sys.version_info[:2])


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {
        # Whether the play connects to the nodes.
        "connects": {"type": "bool", "default": True},
        # Whether the play launches a program of the user.
        "launches": {"type": "bool", "default": False},
        # Reason why the play must not skip a node, as a sentence without a full stop.
        "every_node": {"type": "str", "default": ""},
        # Reason why the play must not skip a task, as a sentence without a full stop.
        "every_task": {"type": "str", "default": ""},
    }

    def work(self) -> dict[str, Any]:
        # An older Ansible reads inventories differently, so the validation would not match the values in use.
        if refused := unknown_tags([tag for tags in chosen_tags() for tag in tags]) or self._only_a_part():
            return {"failed": True, "msg": refused}
        found = list(controller.is_recent(*VERSIONS))
        subject = subject_of(len(found), 0)
        result: dict[str, Any] = {}
        if not found:
            inventory = read_inventory(self.task_vars, self._templar, self._loader, self.options["connects"])
            run = read_run(self._loader)
            inventory = of_this_run(inventory, run, self._folder(), launches=self.options["launches"])
            inventory = replace(inventory, requests=requests_of(playbooks(context.CLIARGS)))
            if others := [str(name) for name in run if name not in inventory.options]:
                of_site = names_of_site(others, run, self.task_vars, Path(self._folder()))
                inventory = replace(inventory, not_options=(*INTERNAL, *of_site))
            found = problems(inventory)
            of_run = [problem for problem in found if job.is_of_the_run(inventory, problem)]
            subject = subject_of(len(found), len(of_run))
            result.update(cluster_of(inventory))
            result["warnings"] = [*warnings(inventory), *open_secrets(run)]
        if found:
            lines = [f"{subject}; no node was contacted."]
            lines += [f"- {problem}" for problem in found]
            result.update(failed=True, msg="\n".join(lines))
            if VERSIONS[0] < controller.OLDEST_ANSIBLE:
                # The project's output plugin cannot show results with an older Ansible.
                self._display.error(result["msg"], wrap_text=False)
        return result

    def _only_a_part(self) -> str:
        """Return why a run with --limit or tags is rejected, or an empty string."""
        tags, skipped = chosen_tags()
        words = [f"--{name} {','.join(given)}" for name, given in (("tags", tags), ("skip-tags", skipped)) if given]
        names, played = self.task_vars["groups"].get("gpu_nodes", []), self.task_vars["ansible_play_hosts_all"]
        whole = terminal(without_selection(context.CLIARGS)).command
        return job.part_of_the_run(
            str(context.CLIARGS.get("subset") or ""),
            [name for name in names if name not in played],
            [word for word in words if word != "--tags all"],
            job.WholeRun(self.options["every_node"], self.options["every_task"]),
            whole,
        )

    def _folder(self) -> str:
        """Return the folder of the inventory, from the nodes' variables."""
        names = self.task_vars["groups"].get("gpu_nodes", [])
        of_first = self.task_vars["hostvars"].raw_get(names[0]) if names else {}
        return str(of_first.get("inventory_dir") or project_root())


def subject_of(found: int, of_run: int) -> str:
    """Return the beginning of the message. of_run: the number of problems in variables given to the run."""
    count = "1 problem" if found == 1 else f"{found} problems"
    if not of_run:
        return f"The inventory has {count}"
    subject = "The input given with -e" if found == of_run else "The inventory and the input given with -e"
    return f"{subject} {'has' if found == of_run else 'have'} {count}"


def of_this_run(inventory: Inventory, run: Mapping[str, Any], folder: str, *, launches: bool) -> Inventory:
    """Return the inventory, with the variables given to this run. folder: the inventory folder."""
    first = inventory.nodes[0].variables if inventory.nodes else {}
    return replace(
        inventory,
        given=places_of(run),
        unassigned=unassigned(run, sentence(context.CLIARGS, "reason")),
        launches=launches,
        unusable=tuple(unusable_files(first)) if launches else (),
        rules=tuple(rules_of_site(first)),
        environments=tuple(problems_of(first, folder)),
    )


def requests_of(books: Sequence[str]) -> tuple[str, ...]:
    """Return the short names that playbooks of Muster read as options of one run."""
    root = project_root()
    own = [path for book in books if (path := Path(book).resolve()).is_relative_to(root)]
    files = [file for path in own for file in (path, *root.glob(f"roles/{path.stem}/[dv]*/main.yml"))]
    text = "\n".join(file.read_text("utf-8") for file in files)
    subjects = {path.stem for pattern in ("roles/*", "playbooks/*") for path in root.glob(pattern)}
    found = set(re.findall(r"\{\{ \(?([a-z]\w*) \| default\(", text))
    return tuple(name for name in found if "_" not in name or name.partition("_")[0] not in {*subjects, *OWN_WORDS})


def names_of_playbooks() -> set[str]:
    """Return the names that playbooks and roles use with a default, such as a short name of an option, and the
    variables of roles."""
    patterns = ("site.yml", "playbooks/*.yml", "roles/*/defaults/*.yml", "roles/*/tasks/*.yml", "roles/*/vars/*.yml")
    text = "\n".join(path.read_text("utf-8") for pattern in patterns for path in project_root().glob(pattern))
    return {*re.findall(r"\b(\w+) \| default\(", text), *re.findall(r"^(\w+):", text, re.MULTILINE)}


def names_of_site(names: list[str], run: Mapping[str, Any], task_vars: Mapping[str, Any], folder: Path) -> list[str]:
    """Return the names given with -e that the inventory, a playbook or a role uses; any, for a playbook of the site."""
    if any(project_root() not in Path(book).resolve().parents for book in playbooks(context.CLIARGS)):
        return [name for name in names if not name.startswith(job.OURS)]
    inventory = task_vars["hostvars"]._inventory
    written = [str(one.vars) for one in (*inventory.hosts.values(), *inventory.groups.values())]
    written += [str(value) for value in run.values()]  # a template given with -e may use them
    files = [path for part in ("group_vars", "host_vars") for path in folder.glob(f"{part}/**/*") if path.is_file()]
    written += [path.read_text(encoding="utf-8", errors="replace") for path in files]
    used = {*re.findall(r"\w+", "\n".join(written)), *names_of_playbooks()}
    return [name for name in names if name in used]


def rules_of_site(values: Mapping[str, Any]) -> list[Problem]:
    """Return the problems in the site's diagnosis rules."""
    _, found = read_rules(values.get(FILES) or (), commands=values.get(COMMANDS) is True)
    return found


def cluster_of(inventory: Inventory) -> dict[str, Any]:
    """Return the cluster's name and artifacts folder, or an empty result if they are invalid."""
    for node in inventory.nodes[:1]:
        name, kept = node.text("cluster_name"), node.text("cluster_artifacts_dir")
        if kept and re.fullmatch(CLUSTER_NAME, name):
            names = [one.name for one in inventory.nodes]
            return {
                "cluster": {
                    "name": name,
                    "folder": str(Path(kept).absolute() / name),
                    "nodes": names,
                    "keep": node.number("cluster_artifacts_keep") or 0,
                    "notify": {
                        "url_file": node.text("cluster_notify_url_file"),
                        "command": node.variables.get("cluster_notify_command") or [],
                        "format": node.text("cluster_notify_format"),
                    },
                }
            }
    return {}


def read_inventory(task_vars: Mapping[str, Any], templar: Templar, loader: DataLoader, connects: bool) -> Inventory:
    roles = load_roles(loader)
    always = (*load_roles(loader, "cluster").options, *BESIDE, *CONNECTION)
    nodes = tuple(_node(task_vars, templar, roles, name, always) for name in task_vars["groups"].get("gpu_nodes", []))
    return Inventory(
        nodes=nodes,
        options=tuple(roles.options),
        forks=context.CLIARGS["forks"],
        ansible_version=VERSIONS[0],
        python_version=VERSIONS[1],
        connects=connects,
        secrets=tuple(dict.fromkeys(_secrets(task_vars))),
        files={name: controller_file(name) for name in {node.text("cluster_extra_ca") for node in nodes} if name},
    )


def _node(
    task_vars: Mapping[str, Any], templar: Templar, roles: Roles, name: str, always: tuple[str, ...]
) -> InventoryNode:
    given = task_vars["hostvars"].raw_get(name)
    own = (option for option in roles.options if option in given)
    reading = read_node(task_vars, templar, roles, name, (*always, *own))
    unknown = (variable for variable in given if variable not in roles.options and variable not in INTERNAL)
    places = {variable: written_at(variable) for variable in given}
    return InventoryNode(name, reading.values, reading.errors, tuple(unknown), places)


def _secrets(task_vars: Mapping[str, Any]) -> Iterator[Secret]:
    """Return secrets in clear text, for all hosts of the inventory, because a jump host can have its password there."""
    sources = [Path(source).absolute() for source in context.CLIARGS.get("inventory") or () if "," not in source]
    folders = tuple(source if source.is_dir() else source.parent for source in sources)
    for host in task_vars["groups"]["all"]:
        yield from clear_secrets(task_vars["hostvars"].raw_get(host), (*folders, project_root() / "playbooks"))
