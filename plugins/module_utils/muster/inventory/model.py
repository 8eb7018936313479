"""An inventory as it is judged, and a problem of it."""

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
# The oldest that ansible-core 2.19 runs with.
OLDEST_PYTHON = (3, 11)
# What is said of a file that is not there.
CONTROLLER_FILES = "Write its path as it is on the controller; a relative one begins at the folder of ansible.cfg"
# Connections over these do not use ansible_host.
LOCAL_CONNECTIONS = ("local", "ansible.builtin.local")


@dataclass(frozen=True)
class Problem:
    """Where something is wrong, what it is, and how to fix it."""

    place: str
    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}. {self.fix}."


@dataclass(frozen=True)
class InventoryNode:
    """A node as the inventory describes it.

    variables: what could be read, with the roles' defaults. errors: what is wrong with each of the others.
    unknown: the names that are no option of a role.
    """

    name: str
    variables: Mapping[str, Any] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()

    def number(self, name: str) -> int | None:
        value = self.variables.get(name)
        return value if isinstance(value, int) else None

    def text(self, name: str) -> str:
        value = self.variables.get(name)
        return str(value).strip() if value is not None else ""

    @property
    def connects_to(self) -> str:
        """What the controller connects to, or nothing where it does not use the network."""
        local = self.text("ansible_connection") in LOCAL_CONNECTIONS
        return "" if local else self.text("ansible_host") or self.name

    @property
    def quarantined(self) -> bool:
        return bool(self.variables.get("cluster_quarantined"))


@dataclass(frozen=True)
class Secret:
    """A variable that holds a secret in clear text, and the file in which it does."""

    variable: str
    file: str


@dataclass(frozen=True)
class Inventory:
    """All that is judged.

    options: every option of every role. connects: whether the play is going to connect to the nodes. files: what is in
    the controller's files that options name; None for one that cannot be read.

    given: what was given to this run with -e, and where, as "job.yml line 3"; not_options: names of it that are no
    options and still right. unassigned: words behind -e that set nothing. launches: whether the play launches
    something. unusable: options of a launch whose file on the controller cannot be used, and why.

    rules: what is wrong with the site's own rules for diagnoses. environments: with cluster_environments and its files.
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
    unassigned: tuple[str, ...] = ()
    launches: bool = False
    unusable: tuple[tuple[str, str], ...] = ()
    rules: tuple[Problem, ...] = ()
    environments: tuple[Problem, ...] = ()

    def participants(self) -> list[InventoryNode]:
        chosen = self.launch_nodes()
        return [node for node in self.nodes if not node.quarantined and (not chosen or node.name in chosen)]

    def launch_nodes(self) -> list[str]:
        """Return the first list that a node gives; that all give the same one is a rule of its own."""
        lists = (node.variables.get("cluster_launch_nodes") for node in self.nodes)
        return next((names for names in lists if isinstance(names, list)), [])


def ip(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def like_an_address(text: str) -> bool:
    """Whether somebody meant an IP address by it, perhaps with a port, a prefix or brackets."""
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
    # An address may carry a password, which is told to nobody.
    return re.sub(r"(//[^/\s:@]*:)[^/\s@]+@", r"\1...@", str(value))
