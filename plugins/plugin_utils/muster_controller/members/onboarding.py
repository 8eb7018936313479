"""The nodes that this run onboards: as they were named with -e, and their progress, as its callbacks report it.

There is one Onboarding in ansible-playbook. The callback report hands on what happens; processes that are forked for
actions have it as it is then. A run that dies leaves its nodes quarantined, as they were written.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.inventory.manager import InventoryManager
from ansible.vars.manager import VariableManager

from muster.members.quarantine import OPTION, read
from muster.onboard import ending, request
from muster.onboard.standing import REFUSED
from muster_controller.inventory import inventory_file
from muster_node.tools.run import run

from . import members, newcomers
from .newcomers import GROUP, sources

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ansible.parsing.dataloader import DataLoader

    from muster.onboard.request import NewNode

LONGEST = 300  # characters of a reason


class Onboarding:
    """took and failed as things happen, and end."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.process = os.getpid()
        self.ended: ending.OnboardingOutcome | None = None

    def took(self, result: Mapping[str, Any]) -> None:
        told = result.get("onboarding")
        for name, own in told.items() if isinstance(told, dict) else ():
            self.nodes.setdefault(name, {}).update(own)

    def failed(self, host: str, why: str, result: Mapping[str, Any], *, once: bool) -> None:
        """once: what fails speaks of all nodes of the play."""
        said = ending.first_finding(result.get("verdict")) or why
        for name, own in self.nodes.items():
            if name == host or (once and not own.get("accepted")):
                first = said.strip().partition("\n")[0].removeprefix(f"{name}: ").rstrip(".")
                own.setdefault("why", first or "it failed")

    def end(self, *, check: bool) -> ending.OnboardingOutcome | None:
        """Write down why nodes were not accepted; who asks once more gets the same answer."""
        if self.ended is None and self.nodes:
            reasons = {
                name: members.quarantined((REFUSED + own["why"])[:LONGEST])
                for name, own in self.nodes.items()
                if own.get("written") and not own.get("accepted") and own.get("why")
            }
            if reasons and not check:
                inventory_file.set_variables(sources(), reasons)
            self.ended = ending.end(self.nodes, check=check)
        return self.ended


ONBOARDING = Onboarding()


def ranks(inventories: Sequence[str], loader: DataLoader) -> dict[str, int]:
    """The node rank of each node that takes part in launches, as the files of the inventory have it now."""
    loader.cleanup_all_tmp_files()
    inventory = InventoryManager(loader, sources=list(inventories))
    variables = VariableManager(loader, inventory)
    hosts = inventory.groups[GROUP].get_hosts() if GROUP in inventory.groups else []
    said = {host.name: variables.get_vars(host=host, include_hostvars=False).get(OPTION, False) for host in hosts}
    taking_part = [name for name, value in said.items() if not read(value)]
    return {name: number for number, name in enumerate(taking_part)}


def asked(options: Mapping[str, Any]) -> tuple[list[NewNode], list[str]]:
    """The nodes, and what is wrong with the request. options: node, address, host_key, gpus, nodes, nodes_file and
    ssh_config, as the modules onboard_request and import_inventory document them."""
    config = options["ssh_config"]
    given = request.OnboardingOptions(
        **{name: options[name] for name in ("node", "address", "host_key", "gpus", "nodes")},
        nodes_file=options["nodes_file"],
        file=newcomers.text_of(options["nodes_file"]) if options["nodes_file"] else None,
        ssh_config=config,
        config=newcomers.text_of(config) if config else None,
        is_own=is_own(config) if config else False,
    )
    found, problems = request.asked(given)
    if not config:
        return found, problems
    nodes = []
    for one in found:
        own, plain = (settings(config, host) for host in (one.name, newcomers.NOWHERE))
        problems += request.problems_of_ssh(one, own)
        address, variables = request.of_ssh(own, plain)
        nodes.append(request.NewNode(one.name, address, {**variables, **one.variables}, one.where))
    return nodes, problems


def is_own(config: str) -> bool:
    """Whether ssh reads this file at every connection of this user."""
    return os.path.realpath(Path(config).expanduser()) == os.path.realpath(Path.home() / ".ssh/config")


def settings(config: str, host: str) -> dict[str, str]:
    """What ssh makes of a host with this config."""
    said = run("ssh", "-F", str(Path(config).expanduser()), "-G", host, env=os.environ, cwd=".")
    found: dict[str, str] = {}
    for line in said.text.splitlines():
        keyword, _, value = line.partition(" ")
        found.setdefault(keyword, value)
    return found
