"""The nodes that this run onboards: the request given with -e, and the progress that callbacks report.

The process of ansible-playbook has one Onboarding object, which the callback report updates. Processes that are forked
for actions have a copy from the time of the fork. If a run is killed, its nodes stay quarantined in the inventory.
"""

from __future__ import annotations

import os
from tempfile import NamedTemporaryFile
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
    """Call took and failed for each event, and end once."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.process = os.getpid()
        self.ended: ending.OnboardingOutcome | None = None

    def took(self, result: Mapping[str, Any]) -> None:
        told = result.get("onboarding")
        for name, own in told.items() if isinstance(told, dict) else ():
            self.nodes.setdefault(name, {}).update(own)

    def failed(self, host: str, why: str, result: Mapping[str, Any], *, once: bool) -> None:
        """once: whether the failure concerns all nodes of the play."""
        said = ending.first_finding(result.get("verdict")) or why
        for name, own in self.nodes.items():
            if name == host or (once and not own.get("accepted")):
                first = said.strip().partition("\n")[0].removeprefix(f"{name}: ").rstrip(".")
                own.setdefault("why", first or "failed")

    def end(self, *, check: bool) -> ending.OnboardingOutcome | None:
        """Write why nodes were not accepted. Later calls return the same result."""
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
    """Return the node rank of each participating node, according to the current inventory files."""
    loader.cleanup_all_tmp_files()
    inventory = InventoryManager(loader, sources=list(inventories))
    variables = VariableManager(loader, inventory)
    hosts = inventory.groups[GROUP].get_hosts() if GROUP in inventory.groups else []
    said = {host.name: variables.get_vars(host=host, include_hostvars=False).get(OPTION, False) for host in hosts}
    taking_part = [name for name, value in said.items() if not read(value)]
    return {name: number for number, name in enumerate(taking_part)}


def asked(options: Mapping[str, Any]) -> tuple[list[NewNode], list[str]]:
    """Return the nodes, and the errors in the request. options: node, address, host_key, gpus, nodes, nodes_file and
    ssh_config; see the modules onboard_request and import_inventory."""
    config = options["ssh_config"]
    text = newcomers.text_of(config) if config else None
    given = request.OnboardingOptions(
        **{name: options[name] for name in ("node", "address", "host_key", "gpus", "nodes")},
        nodes_file=options["nodes_file"],
        file=newcomers.text_of(options["nodes_file"]) if options["nodes_file"] else None,
        ssh_config=config,
        config=text,
        is_own=text is not None and text == newcomers.text_of("~/.ssh/config"),
    )
    found, problems = request.asked(given)
    if text is None:
        return found, problems
    nodes = []
    # The owner of the file can change it after the check, so ssh reads a copy. Relative paths in it do not change
    # their meaning, because ssh resolves them in ~/.ssh or in the working directory.
    with NamedTemporaryFile("w", encoding="utf-8", newline="") as checked:
        checked.write(text)
        checked.flush()
        for one in found:
            own, plain = (settings(checked.name, host) for host in (one.name, newcomers.NOWHERE))
            problems += request.problems_of_ssh(one, own)
            address, variables = request.of_ssh(own, plain)
            nodes.append(request.NewNode(one.name, address, {**variables, **one.variables}, one.where))
    return nodes, problems


def settings(config: str, host: str) -> dict[str, str]:
    """Return the settings that ssh uses for a host with this config file."""
    said = run("ssh", "-F", config, "-G", host, env=os.environ, cwd=".")
    found: dict[str, str] = {}
    for line in said.text.splitlines():
        keyword, _, value = line.partition(" ")
        found.setdefault(keyword, value)
    return found
