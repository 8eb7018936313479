"""What is wrong with an inventory, told from the inventory alone.

`problems` asks every rule of RULES. A rule is a function from the inventory to its problems; it judges only
what it can read, because a value that cannot be read is a problem of its own (`unreadable_values`).
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Rule = Callable[["Inventory"], "Iterable[Problem]"]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

CONTROLLER = "controller"
CLUSTER = "the cluster"
# What all nodes of a cluster must agree on. The other options of roles/cluster are each node's own.
CLUSTER_WIDE = (
    "cluster_name",
    "cluster_backend",
    "cluster_master_port",
    "cluster_torch_version",
    "cluster_user",
    "cluster_launch_nodes",
    "cluster_artifacts_dir",
    "cluster_run_root",
    "cluster_run_keep",
)
# RFC 5737, RFC 3849 and RFC 9637: addresses that no machine has, for use in examples.
DOCUMENTATION = tuple(
    map(
        ipaddress.ip_network,
        ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"),
    )
)
# Connections over these do not use ansible_host.
LOCAL_CONNECTIONS = ("local", "ansible.builtin.local")
PORTS = range(1024, 65536)
# Linux's net.ipv4.ip_local_port_range, unless it was changed: any outgoing connection may hold one of these.
EPHEMERAL_PORTS = range(32768, 61000)
OLDEST_ANSIBLE = (2, 19)


@dataclass(frozen=True)
class Problem:
    """Where something is wrong, what it is, and how to mend it."""

    place: str
    what: str
    mend: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}. {self.mend}."


@dataclass(frozen=True)
class Node:
    """A node as the inventory describes it.

    variables: what could be read, with the roles' defaults. errors: what is wrong with each of the others.
    unknown: names like cluster_* that are no option.
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
        return self.variables.get("cluster_quarantined") is True


@dataclass(frozen=True)
class Inventory:
    """All that is judged. connects: whether the play is going to connect to the nodes."""

    nodes: tuple[Node, ...]
    options: tuple[str, ...]
    forks: int
    ansible_version: tuple[int, ...]
    connects: bool = True

    def participants(self) -> list[Node]:
        chosen = self.launch_nodes()
        return [node for node in self.nodes if not node.quarantined and (not chosen or node.name in chosen)]

    def launch_nodes(self) -> list[str]:
        """Return the first list that a node gives; that all give the same one is a rule of its own."""
        lists = (node.variables.get("cluster_launch_nodes") for node in self.nodes)
        return next((names for names in lists if isinstance(names, list)), [])


def problems(inventory: Inventory) -> list[Problem]:
    """Return all problems of the inventory; the same one on several nodes is one problem."""
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for rule in RULES:
        for problem in rule(inventory):
            places[problem.what, problem.mend].append(problem.place)
    every_node = [node.name for node in inventory.nodes]
    return [Problem(_join(where, every_node), what, mend) for (what, mend), where in places.items()]


def _join(places: list[str], every_node: list[str]) -> str:
    if len(places) > 1 and places == every_node:
        return "every node"
    if len(places) > 5:
        return f"{', '.join(places[:4])} and {len(places) - 4} more nodes"
    return ", ".join(places)


def controller_is_recent(inventory: Inventory) -> Iterator[Problem]:
    if inventory.ansible_version < OLDEST_ANSIBLE:
        have = ".".join(map(str, inventory.ansible_version))
        need = ".".join(map(str, OLDEST_ANSIBLE))
        yield Problem(
            CONTROLLER,
            f"ansible-core {have} is older than {need}, the oldest that Muster works with",
            "Run script/setup, then .venv/bin/ansible-playbook",
        )


def enough_forks(inventory: Inventory) -> Iterator[Problem]:
    count = len(inventory.nodes)
    if inventory.forks < count:
        yield Problem(
            CONTROLLER,
            f"forks is {inventory.forks}, but all {count} nodes are worked on at once",
            f"Set forks to {count} or more in ansible.cfg, or add --forks {count} to the command",
        )


def there_are_nodes(inventory: Inventory) -> Iterator[Problem]:
    if not inventory.nodes:
        yield Problem(
            "inventory",
            "the group gpu_nodes has no nodes",
            "List every node there, as inventory/lab/hosts.yml does, and name that inventory with -i",
        )


def unreadable_values(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        for name, error in node.errors.items():
            yield Problem(node.name, f"{name} {error}", f"Correct {name}")


def misspelt_options(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        for name in node.unknown:
            for option in difflib.get_close_matches(name, inventory.options, n=1, cutoff=0.85):
                yield Problem(node.name, f"{name} is no option of Muster", f"Write {option}, or rename it")


def addresses_are_given(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        address = node.text("cluster_address")
        if node.errors.keys() & {"ansible_host", "cluster_address"} or _ip(address):
            continue
        if not address or address == node.name:
            yield Problem(node.name, "no address is given", "Add its IP address as ansible_host")
        else:
            yield Problem(
                node.name,
                f"cluster_address is {address}, but training needs an IP address, not a name",
                "Add its IP address as cluster_address; ansible_host may stay a name",
            )


def addresses_are_used_once(inventory: Inventory) -> Iterator[Problem]:
    holders: dict[tuple[str, str], list[str]] = defaultdict(list)
    for node in inventory.nodes:
        address = _ip(node.text("cluster_address"))
        if address:
            holders["cluster_address", str(address)].append(node.name)
        if node.connects_to:
            host = str(_ip(node.connects_to) or node.connects_to.lower())
            port = node.text("ansible_port") or "22"
            holders["ansible_host", host if port == "22" else f"{host} port {port}"].append(node.name)
    told = set()
    for (variable, address_text), names in holders.items():
        # The training address is by default the one that Ansible connects to: one mistake, one problem.
        if len(names) > 1 and (address_text, *names) not in told:
            told.add((address_text, *names))
            yield Problem(
                ", ".join(names),
                f"have the same address, {address_text} ({variable})",
                "Give every node its own, and list every machine once",
            )


def no_documentation_addresses(inventory: Inventory) -> Iterator[Problem]:
    if not inventory.connects:
        return
    for node in inventory.nodes:
        for text in dict.fromkeys((node.connects_to, node.text("cluster_address"))):
            address = _ip(text)
            for network in DOCUMENTATION:
                if address and address in network:
                    yield Problem(
                        node.name,
                        f"{address} is a sample address: no machine has one of {network}",
                        "Write the node's own address",
                    )


def addresses_can_be_reached(inventory: Inventory) -> Iterator[Problem]:
    if len(inventory.nodes) < 2:
        return
    for node in inventory.nodes:
        address = _ip(node.text("cluster_address"))
        kind = _unreachable_kind(address) if address else ""
        if kind:
            yield Problem(
                node.name,
                f"cluster_address {address} is {kind}, at which no other node can reach it",
                "Set cluster_address to its address on the network that the nodes share",
            )


def one_address_family(inventory: Inventory) -> Iterator[Problem]:
    families: dict[int, list[str]] = defaultdict(list)
    for node in inventory.nodes:
        address = _ip(node.text("cluster_address"))
        if address:
            families[address.version].append(node.name)
    if len(families) > 1:
        yield Problem(
            CLUSTER,
            f"training goes over IPv4 on {_join(families[4], [])}, and over IPv6 on {_join(families[6], [])}",
            "Set cluster_address to addresses of one kind on all nodes",
        )


def cluster_wide_values_agree(inventory: Inventory) -> Iterator[Problem]:
    for name in CLUSTER_WIDE:
        holders: dict[str, list[str]] = defaultdict(list)
        for node in inventory.nodes:
            if name in node.variables:
                holders[_shown(node.variables[name])].append(node.name)
        if len(holders) > 1:
            values = "; ".join(f"{value} on {_join(names, [])}" for value, names in holders.items())
            yield Problem(
                CLUSTER,
                f"{name} differs between nodes: {values}",
                f"Set {name} once, in group_vars/all.yml, and nowhere else",
            )


def master_port_is_free_to_use(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        port = node.number("cluster_master_port")
        if port is None:
            continue
        if port not in PORTS:
            yield Problem(
                node.name,
                f"cluster_master_port is {port}, not a port from {PORTS[0]} to {PORTS[-1]}",
                "Choose another, such as 29500",
            )
        elif port in EPHEMERAL_PORTS:
            yield Problem(
                node.name,
                f"cluster_master_port is {port}, which any outgoing connection may take:"
                f" Linux gives them {EPHEMERAL_PORTS[0]} to {EPHEMERAL_PORTS[-1]}",
                f"Choose one below {EPHEMERAL_PORTS[0]}, such as 29500",
            )


def processes_fit_the_gpus(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        gpus = node.number("cluster_gpus")
        nproc = node.number("cluster_nproc_per_node")
        if gpus is not None and gpus < 0:
            yield Problem(node.name, f"cluster_gpus is {gpus}", "Write the number of GPUs, or 0 for none")
        if nproc is not None and nproc < 1:
            yield Problem(node.name, f"cluster_nproc_per_node is {nproc}", "A node trains with 1 process or more")
        if gpus is not None and nproc is not None and 0 < gpus < nproc:
            yield Problem(
                node.name,
                f"cluster_nproc_per_node is {nproc}, but the node has {gpus} GPUs (cluster_gpus)",
                "Each process needs a GPU of its own: lower one or correct the other",
            )


def nccl_has_gpus(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.participants():
        if node.text("cluster_backend") == "nccl" and node.number("cluster_gpus") == 0:
            yield Problem(
                node.name,
                "cluster_backend is nccl, which needs GPUs, and cluster_gpus is 0",
                "Set cluster_gpus to the number of its GPUs, or cluster_backend to auto or gloo",
            )


def launch_nodes_exist(inventory: Inventory) -> Iterator[Problem]:
    nodes = {node.name: node for node in inventory.nodes}
    chosen = inventory.launch_nodes()
    for name in dict.fromkeys(chosen):
        if name not in nodes:
            close = difflib.get_close_matches(name, nodes, n=1)
            hint = f"Write {close[0]}, if that is meant" if close else "Add it to gpu_nodes, or take it out"
            yield Problem(CLUSTER, f"cluster_launch_nodes names {name}, which is not in gpu_nodes", hint)
        elif nodes[name].quarantined:
            yield Problem(
                name,
                "is in cluster_launch_nodes, but is quarantined (cluster_quarantined)",
                "Take it out of the list, or end its quarantine",
            )


def user_is_unprivileged(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        user = node.text("cluster_user")
        if "cluster_user" not in node.variables:
            continue
        if user == "root":
            yield Problem(node.name, "cluster_user is root", "Training runs as an unprivileged user: name another")
        elif not re.fullmatch(r"[a-z_][a-z0-9_-]{0,31}", user):
            yield Problem(
                node.name,
                f"cluster_user is {user!r}, which is no name of a user",
                "Use lower-case letters, digits, - and _, at most 32, beginning with a letter",
            )


def names_are_plain(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        name = node.text("cluster_name")
        if "cluster_name" in node.variables and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", name):
            yield Problem(
                node.name,
                f"cluster_name is {name!r}, which cannot be used in paths and unit names",
                "Use letters, digits, dots, - and _, beginning with a letter or a digit",
            )


def torch_version_is_exact(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        version = node.text("cluster_torch_version")
        if "cluster_torch_version" in node.variables and not re.fullmatch(
            r"\d+\.\d+\.\d+((a|b|rc)\d+)?(\+\w+)?", version
        ):
            yield Problem(
                node.name,
                f"cluster_torch_version is {version!r}, not an exact version",
                'Write all three numbers, such as "2.13.0"',
            )


RULES: tuple[Rule, ...] = (
    controller_is_recent,
    enough_forks,
    there_are_nodes,
    unreadable_values,
    misspelt_options,
    addresses_are_given,
    addresses_are_used_once,
    no_documentation_addresses,
    addresses_can_be_reached,
    one_address_family,
    cluster_wide_values_agree,
    names_are_plain,
    user_is_unprivileged,
    torch_version_is_exact,
    master_port_is_free_to_use,
    processes_fit_the_gpus,
    nccl_has_gpus,
    launch_nodes_exist,
)


def _ip(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _unreachable_kind(address: Address) -> str:
    kinds = {
        "a loopback address": address.is_loopback,
        "a link-local address": address.is_link_local,
        "no address of one machine": address.is_unspecified or address.is_multicast,
    }
    return next((kind for kind, applies in kinds.items() if applies), "")


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return str(value)
