"""Parse the nodes to onboard from the options given with -e, and report all problems at once."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..inventory.addresses import can_be_host
from ..inventory.model import ip, like_an_address
from . import lists

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

# Keywords of an ssh config that can run commands.
DOES = {"Match exec": "run a command", "Include": "include another file, which might run commands,"}
_USER = r"[A-Za-z0-9_.%][A-Za-z0-9_.%@+$\\-]*"
_HOP = rf"(?:ssh://)?(?:{_USER}@)?(?:[A-Za-z0-9_%][A-Za-z0-9_.%-]*|\[[\w:.%]+\]|[0-9A-Fa-f:.]+)(?::[0-9]+)?"
FORMS = {"user": re.compile(_USER), "proxyjump": re.compile(rf"{_HOP}(?:,{_HOP})*")}
MEANT = {"user": "a user name", "proxyjump": "a comma-separated list of [user@]host[:port]"}
WAYS = ("node", "nodes", "nodes_file", "ssh_config")
HOW = (
    'Add one of -e node=NAME -e address=ADDRESS, -e \'{"nodes": {"NAME": "ADDRESS"}}\', -e nodes_file=FILE,'
    " -e ssh_config=~/.ssh/config"
)
# Keys of a node in `nodes` -> variables of the inventory.
KEYS = {
    "address": "ansible_host",
    "host_key": "cluster_host_key",
    "gpus": "cluster_gpus",
    "user": "ansible_user",
    "port": "ansible_port",
    "training_address": "cluster_address",
}
WHOLE_NUMBERS = ("gpus", "port")


@dataclass(frozen=True)
class NewNode:
    """A node to onboard. variables: its variables for the inventory. where: where the node was given, for messages.

    address: the address for the controller. A name is resolved. If the address is "", the node's name is resolved.
    """

    name: str
    address: str = ""
    variables: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""


@dataclass(frozen=True)
class OnboardingOptions:
    """The given options.

    file, config: contents of nodes_file and ssh_config; None if unreadable. is_own: whether the config is the user's
    own one, which ssh always reads.
    """

    node: Any = ""
    address: Any = ""
    host_key: Any = ""
    gpus: Any = 0
    nodes: Any = None
    nodes_file: str = ""
    file: str | None = None
    ssh_config: str = ""
    config: str | None = None
    is_own: bool = False


def asked(given: OnboardingOptions) -> tuple[list[NewNode], list[str]]:
    """Return the requested nodes, and the problems of the request as sentences."""
    ways = [way for way in WAYS if getattr(given, way) and not (way == "node" and given.ssh_config)]
    if len(ways) != 1:
        what = f"{' and '.join(ways)} are given, but only one is allowed. " if ways else "No node is given. "
        return [], [what + HOW + "."]
    found, problems = {"node": _named, "nodes": _mapped, "nodes_file": _of_file, "ssh_config": _of_config}[ways[0]](
        given
    )
    problems += [f"{way} is only allowed with -e node=NAME." for way in _stray(given, ways[0])]
    names = [one.name for one in found]
    problems += [f"{name} is listed twice." for name in dict.fromkeys(names) if names.count(name) > 1]
    problems += [problem for one in found for problem in _of_node(one)]
    return found, list(dict.fromkeys(problems))


def _stray(given: OnboardingOptions, way: str) -> list[str]:
    beside = ("address", "host_key", "gpus") if way != "node" else ()
    return [name for name in beside if getattr(given, name)]


def _of_node(one: NewNode) -> Iterable[str]:
    if not can_be_host(one.name):
        yield f"{one.where}: {one.name[:80]!r} is not a valid host name. Use letters, digits, - and dots."
    if one.address and like_an_address(one.address) and ip(one.address) is None:
        yield f"{one.name}: {one.address} is not a valid IP address. Set only the address."
    elif one.address and not can_be_host(one.address):
        yield f"{one.name}: {one.address[:80]!r} is neither an IP address nor a host name."


# ---------------------------------------------------------------- -e node=NAME -e address=ADDRESS


def _named(given: OnboardingOptions) -> tuple[list[NewNode], list[str]]:
    problems: list[str] = []
    names = _listed("node", given.node, problems)
    addresses = _listed("address", given.address, problems)
    keys = [key.strip() for key in _texts(given.host_key, ",") if key.strip()]
    for what, values in (("address", addresses), ("host_key", keys)):
        if values and len(values) != len(names) and names:
            problems.append(f"node has {len(names)} entries, but {what} has {len(values)}. The numbers must be equal.")
    if problems:
        return [], problems
    gpus = {"cluster_gpus": _number("gpus", given.gpus, "-e", problems)} if given.gpus else {}
    return [
        NewNode(
            name,
            addresses[place] if addresses else "",
            {**({"cluster_host_key": keys[place]} if keys else {}), **gpus},
            "node",
        )
        for place, name in enumerate(names)
    ], problems


def _texts(value: Any, between: str = "") -> list[str]:
    values = value if isinstance(value, (list, tuple)) else [value]
    return [part for one in values if one for part in (str(one).split(between) if between else [str(one)])]


def _listed(what: str, value: Any, problems: list[str]) -> list[str]:
    found: list[str] = []
    for text in _texts(value):
        try:
            found += lists.expand(text)
        except ValueError as problem:
            problems.append(f"{what}: {problem}.")
    return found


# ---------------------------------------------------------------- -e '{"nodes": {...}}'


def _mapped(given: OnboardingOptions) -> tuple[list[NewNode], list[str]]:
    if not isinstance(given.nodes, dict):
        example = '{"nodes": {"node9": "10.0.0.9"}}'
        return [], [f"nodes must be a mapping of names to addresses, such as -e '{example}'."]
    problems: list[str] = []
    found = []
    for name, said in given.nodes.items():
        own = said if isinstance(said, dict) else {"address": said or ""}
        where = f"nodes, {name}"
        unknown = [str(key) for key in own if key not in KEYS]
        if unknown:
            problems.append(f"{where}: {unknown[0]!r} is not a valid key. Use one of {', '.join(KEYS)}.")
        values = {
            KEYS[key]: _number(key, value, where, problems) if key in WHOLE_NUMBERS else str(value)
            for key, value in own.items()
            if key in KEYS and key != "address"
        }
        found.append(NewNode(str(name), str(own.get("address") or ""), values, where))
    return found, problems


def _number(key: str, value: Any, where: str, problems: list[str]) -> int:
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdecimal() and len(text) <= 5):
        problems.append(f"{where}: {key} is {text[:20]!r}, which is not a number.")
        return 0
    return int(text)


# ---------------------------------------------------------------- -e nodes_file=FILE


def _of_file(given: OnboardingOptions) -> tuple[list[NewNode], list[str]]:
    if given.file is None:
        return [], [f"nodes_file is {given.nodes_file}, which cannot be read on the controller."]
    lines, wrong = lists.hostfile(given.file)
    problems = [f"{given.nodes_file}, {problem}." for problem in wrong]
    if not lines and not problems:
        problems.append(f"{given.nodes_file} has no nodes.")
    found: list[NewNode] = []
    for line in lines:
        where = f"{given.nodes_file}, line {line.number}"
        gpus = {"cluster_gpus": line.slots} if line.slots else {}
        try:
            # A single address gives the node a stable name.
            names = [name_of(line.name)] if ip(line.name) else lists.expand(line.name)
            addresses = (
                lists.expand(line.address) if line.address else [line.name] if ip(line.name) else [""] * len(names)
            )
        except ValueError as problem:
            problems.append(f"{where}: {problem}.")
            continue
        if len(names) != len(addresses):
            problems.append(f"{where}: the line has {len(names)} names but {len(addresses)} addresses.")
            continue
        found += [NewNode(name, address, gpus, where) for name, address in zip(names, addresses, strict=True)]
    return found, problems


def name_of(address: str) -> str:
    """Return the node name for a node that was given only by its address."""
    return "node-" + address.lower().replace(".", "-").replace(":", "-").strip("-")


# ---------------------------------------------------------------- -e ssh_config=FILE


def _of_config(given: OnboardingOptions) -> tuple[list[NewNode], list[str]]:
    if given.config is None:
        return [], [f"ssh_config is {given.ssh_config}, which cannot be read on the controller."]
    if not given.is_own and (risky := lists.commands(given.config)):
        where = f"{given.ssh_config} line"
        rest = "when it reads the file. Remove the line."
        return [], [f"{where} {number}: {what} makes ssh {DOES[what]} {rest}" for number, what in risky]
    known = lists.aliases(given.config)
    problems: list[str] = []
    names: list[str] = []
    for text in _texts(given.node) or [""]:
        try:
            found, missing = lists.chosen(known, text)
        except ValueError as problem:
            problems.append(f"node: {problem}.")
            continue
        names += [name for name in found if name not in names]
        problems += [f"{given.ssh_config} has no Host {pattern}." for pattern in missing]
    if not names and not problems:
        problems.append(f"{given.ssh_config} has no Host entry with a name. Patterns such as Host * are ignored.")
    return [NewNode(name, "", {}, given.ssh_config) for name in names], problems


def problems_of_ssh(one: NewNode, own: Mapping[str, str]) -> Iterator[str]:
    """Report values in the output of `ssh -G` that must not be written to an inventory, because ssh might pass them to
    a shell.
    """
    for keyword, form in FORMS.items():
        value = own.get(keyword, "none")
        if value != "none" and not form.fullmatch(value):
            yield f"{one.where}: {keyword} of {one.name} is {value[:80]!r}. Write {MEANT[keyword]}."


def of_ssh(own: Mapping[str, str], plain: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Return the address and the inventory variables of a host, from the output of `ssh -G`.

    own: the settings with the user's config. plain: the settings of a host without any config.
    """
    values: dict[str, Any] = {}
    if own.get("port", "22") != plain.get("port", "22"):
        values["ansible_port"] = int(own["port"])
    if own.get("user") and own["user"] != plain.get("user"):
        values["ansible_user"] = own["user"]
    if own.get("identityfile") and own["identityfile"] != plain.get("identityfile"):
        values["ansible_ssh_private_key_file"] = own["identityfile"]
    if own.get("proxyjump", "none") != "none":
        values["ansible_ssh_common_args"] = f"-o ProxyJump={own['proxyjump']}"
    return own.get("hostname", ""), values


# ---------------------------------------------------------------- for the inventory


def resolved(
    nodes: Sequence[NewNode], looked_up: Mapping[str, Sequence[str]]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return each node for the inventory as {name, variables}, and the problems.

    looked_up: the resolved addresses of each name.
    """
    found, problems = [], []
    for one in nodes:
        place = one.address or one.name
        address = place if ip(place) else next(iter(looked_up.get(place, ())), "")
        if not address:
            what = f"{one.name} has no address" if place == one.name else f"{one.name}: {place} has no address"
            there = "Set it with -e address=ADDRESS" if one.where in ("", "node") else f"Add it to {one.where}"
            problems.append(f"{what}, because the controller cannot resolve the name. {there}.")
        elif (known := ip(address)) and known.is_loopback:
            problems.append(f"{one.name}: {place} resolves to the loopback address {address}.")
        found.append({"name": one.name, "variables": {"ansible_host": address, **one.variables}})
    return found, problems
