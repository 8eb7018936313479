"""Data classes: an inventory to validate, its nodes, and the problems found."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Rule = Callable[["Inventory"], "Iterable[Problem]"]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

CLUSTER = "the cluster"
# The minimum of ansible-core 2.19.
OLDEST_PYTHON = (3, 11)
# The fix for a missing file.
CONTROLLER_FILES = "Write a path on the controller; relative paths start at the folder of ansible.cfg"
# Connections over these do not use ansible_host.
LOCAL_CONNECTIONS = ("local", "ansible.builtin.local")


@dataclass(frozen=True)
class Problem:
    """A problem: where it is (place), what is wrong, and how to fix it.

    option: the variable whose line in the inventory is shown.
    """

    place: str
    what: str
    fix: str
    option: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.what}. {self.fix}."


@dataclass(frozen=True)
class InventoryNode:
    """A node as described in the inventory.

    variables: the values that could be read, with the roles' defaults. errors: for each unreadable variable, why it
    could not be read. unknown: names that are not options of any role. places: the file and line that set each
    variable, if known.
    """

    name: str
    variables: Mapping[str, Any] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)

    def number(self, name: str) -> int | None:
        value = self.variables.get(name)
        return value if isinstance(value, int) else None

    def text(self, name: str) -> str:
        value = self.variables.get(name)
        return str(value).strip() if value is not None else ""

    @property
    def connects_to(self) -> str:
        """The host name or address that the controller connects to; "" for local connections."""
        local = self.text("ansible_connection") in LOCAL_CONNECTIONS
        return "" if local else self.text("ansible_host") or self.name

    @property
    def quarantined(self) -> bool:
        return bool(self.variables.get("cluster_quarantined"))


@dataclass(frozen=True)
class Secret:
    """A variable that contains a secret in clear text, and the file that sets it."""

    variable: str
    file: str


@dataclass(frozen=True)
class Inventory:
    """The data that the rules check.

    options: options of all roles. connects: whether the play will connect to the nodes. files: contents of the files on
    the controller that options name; None if a file cannot be read.

    given: where each variable given with -e is set, such as "job.yml line 3". not_options: given variables that are
    valid but are not options. requests: names that the playbook reads as options of one run. unassigned: words after -e
    that do not set a variable. launches: whether the play starts a launch. unusable: launch options whose file on the
    controller cannot be used, with the reason.

    rules: problems in the site's own diagnosis rules. environments: problems in cluster_environments and its files.
    """

    nodes: tuple[InventoryNode, ...]
    options: tuple[str, ...]
    forks: int
    ansible_version: tuple[int, ...]
    python_version: tuple[int, ...] = OLDEST_PYTHON
    connects: bool = True
    secrets: tuple[Secret, ...] = ()
    files: Mapping[str, str | None] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    not_options: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    unassigned: tuple[str, ...] = ()
    launches: bool = False
    unusable: tuple[tuple[str, str], ...] = ()
    rules: tuple[Problem, ...] = ()
    environments: tuple[Problem, ...] = ()

    def participants(self) -> list[InventoryNode]:
        chosen = self.launch_nodes()
        return [node for node in self.nodes if not node.quarantined and (not chosen or node.name in chosen)]

    def launch_nodes(self) -> list[str]:
        """Return cluster_launch_nodes of the first node that sets it; cluster_wide_values_agree checks that all nodes
        have the same value.
        """
        lists = (node.variables.get("cluster_launch_nodes") for node in self.nodes)
        return next((names for names in lists if isinstance(names, list)), [])


def ip(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def like_an_address(text: str) -> bool:
    """Return whether the text was probably meant as an IP address, possibly with a port, prefix length or brackets."""
    return re.fullmatch(r"[0-9.]+([/:]\d*)?|\[?[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*\]?([/:]\d*)?", text) is not None


def join(places: list[str], every_node: list[str]) -> str:
    if len(places) > 1 and places == every_node:
        return "every node"
    if len(places) > 5:
        return f"{', '.join(places[:4])} and {len(places) - 4} more nodes"
    return ", ".join(places)


def shown(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    # A URL may contain a password, which must not be shown.
    return re.sub(r"(//[^/\s:@]*:)[^/\s@]+@", r"\1...@", str(value))
