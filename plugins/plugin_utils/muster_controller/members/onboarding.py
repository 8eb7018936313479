"""What became of the nodes that this run onboards, as its callbacks hear of it; in the end each of them has a word.

There is one Onboarding in ansible-playbook. The callback report hands on what happens; processes that are forked for
actions have it as it is then. A run that dies leaves its nodes quarantined, as they were written.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ansible.inventory.manager import InventoryManager
from ansible.vars.manager import VariableManager

from muster.members.quarantine import OPTION, read
from muster.onboard import ending
from muster.onboard.standing import REFUSED
from muster_controller.inventory import inventory_file

from . import quarantine
from .newcomers import GROUP, sources

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ansible.parsing.dataloader import DataLoader

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
                name: quarantine.variables((REFUSED + own["why"])[:LONGEST])
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
