"""Validate an inventory without contacting nodes.

`problems` applies every rule in RULES. A rule is a function that takes the inventory and yields problems. Rules skip
values that cannot be read; `unreadable_values` reports these values.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ..packages import unencrypted
from ..verdict.words import few
from . import addresses, controller, job, role_options, secrets, sources, values
from .model import CLUSTER, Inventory, InventoryNode, Problem, Secret, join
from .values import CLUSTER_NAME, CLUSTER_WIDE

if TYPE_CHECKING:
    from .model import Rule

__all__ = [
    "CLUSTER_NAME",
    "CLUSTER_WIDE",
    "RULES",
    "Inventory",
    "InventoryNode",
    "Problem",
    "Secret",
    "controller",
    "job",
    "problems",
    "warnings",
]

RULES: tuple[Rule, ...] = (
    controller.versions_are_recent,
    controller.enough_forks,
    controller.there_are_nodes,
    values.unreadable_values,
    values.misspelt_options,
    *job.RULES,
    secrets.none_in_clear_text,
    addresses.names_can_be_hosts,
    addresses.names_are_used_once,
    addresses.addresses_are_given,
    addresses.addresses_are_whole,
    addresses.addresses_are_used_once,
    addresses.no_documentation_addresses,
    addresses.addresses_can_be_reached,
    addresses.link_local_on_all_or_none,
    addresses.one_address_family,
    addresses.interfaces_are_names,
    values.cluster_wide_values_agree,
    values.names_are_plain,
    values.user_is_unprivileged,
    values.torch_version_is_exact,
    values.torch_version_is_known,
    values.builds_and_drivers_are_named,
    values.master_port_is_free_to_use,
    values.ssh_port_is_a_port,
    values.master_port_is_outside_the_pinned_range,
    values.training_mtu_is_one,
    values.processes_fit_the_gpus,
    values.nccl_has_gpus,
    values.soak_is_of_its_mode,
    values.launch_nodes_exist,
    values.host_keys_are_keys,
    role_options.entries_can_be_rules,
    role_options.waivers_are_ports_or_names,
    role_options.ranges_are_ranges,
    sources.mirror_urls_can_be_used,
    sources.proxies_can_be_used,
    sources.extra_certificates_are_certificates,
    sources.offline_folders_are_paths,
    sources.rules_of_diagnoses_can_be_used,
    role_options.toolkits_are_versions,
    role_options.nccl_conf_is_a_mapping,
    role_options.fabric_options_can_be_had,
    role_options.nccl_tests_can_be_built,
    role_options.users_are_accounts,
    role_options.limits_can_be_set,
    role_options.users_root_is_a_path,
    role_options.environments_can_be_built,
    role_options.launches_name_one,
    role_options.nodes_exist,
    role_options.packages_are_pins,
    role_options.mounts_can_be_had,
)


def problems(inventory: Inventory) -> list[Problem]:
    """Return all problems of the inventory; a problem that occurs on several nodes is listed once."""
    found: dict[tuple[str, str], list[Problem]] = defaultdict(list)
    for rule in RULES:
        for problem in rule(inventory):
            found[problem.what, problem.fix].append(problem)
    return [Problem(place_of(inventory, same), what, fix) for (what, fix), same in found.items()]


def place_of(inventory: Inventory, same: list[Problem]) -> str:
    """Return where a problem is: the files and lines that set its option, followed by the affected nodes."""
    places = {node.name: node.places for node in inventory.nodes}
    first = next(iter(places.values()), {})
    lines = [places.get(one.place, first).get(one.option, "") for one in same if one.place in (*places, CLUSTER)]
    nodes = join(list(dict.fromkeys(one.place for one in same)), list(places))
    return ": ".join([*([few(known)] if (known := list(dict.fromkeys(filter(None, lines)))) else []), nodes])


def warnings(inventory: Inventory) -> list[str]:
    """Return sentences about settings that are allowed but risky."""
    places: dict[str, list[str]] = defaultdict(list)
    for node in inventory.nodes:
        places[unencrypted.warning(node.variables)].append(node.name)
    every_node = [node.name for node in inventory.nodes]
    return [f"{join(where, every_node)}: {what}." for what, where in places.items() if what]
