"""What the sandbox on this machine lacks, judged from what a look at the machine has found."""

from __future__ import annotations

import ast
import ipaddress
import json
from dataclasses import dataclass, field
from typing import Any

LABEL = "muster.sandbox"
LABEL_CHECKOUT = "muster.checkout"
LABEL_SPEC = "muster.spec"

# Room for the image, and for a node that has PyTorch installed while its next environment is built beside it.
IMAGE_MB = 1500
NODE_MB = 1500

# Settings of pip that say where packages come from, and the variables that hand them to the nodes.
_PIP_LISTS = {"extra-index-url": "pytorch_extra_index_urls", "find-links": "pytorch_find_links"}

# Settings of apt without which a node may not reach the packages that this machine reaches.
_APT_SETTINGS = ("Acquire::http::", "Acquire::https::", "Acquire::Check-", "Acquire::Retries", "Acquire::ForceIPv")


@dataclass(frozen=True)
class Wanted:
    """The sandbox as the inventory describes it."""

    name: str
    checkout: str
    subnet: str
    image: str
    nodes: dict[str, str]
    admin_key: str
    volumes: list[str]
    environment: dict[str, str]


@dataclass(frozen=True)
class Found:
    """What is on this machine."""

    containers: list[dict[str, Any]]
    networks: list[dict[str, Any]]
    routes: list[dict[str, Any]]
    checkouts: set[str]
    image: bool
    free_mb: int


@dataclass
class Plan:
    """The steps from what was found to what is wanted."""

    refusal: str = ""
    build: bool = False
    network: bool = False
    remove_network: bool = False
    remove: list[dict[str, str]] = field(default_factory=list)
    start: list[str] = field(default_factory=list)
    create: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def machines(self) -> bool:
        """Whether the network or a machine is not as wanted."""
        return bool(self.network or self.remove or self.start or self.create)


def container_name(sandbox: str, node: str) -> str:
    """Name of a node's container."""
    return f"{sandbox}-{node}"


def specification(wanted: Wanted, node: str) -> dict[str, Any]:
    """Everything that, when it differs, means that a node has to be made anew."""
    return {
        "image": wanted.image,
        "address": wanted.nodes[node],
        "environment": {**wanted.environment, "MUSTER_ADMIN_KEY": wanted.admin_key},
        "volumes": sorted(wanted.volumes),
    }


def _labels(thing: dict[str, Any]) -> dict[str, str]:
    return thing.get("Labels") or thing.get("labels") or {}


def _name(container: dict[str, Any]) -> str:
    names = container.get("Names") or [""]
    return str(names[0] if isinstance(names, list) else names)


def owned(wanted_name: str, checkout: str, checkouts: set[str], thing: dict[str, Any]) -> bool:
    """Whether a container or network is this checkout's to change: its own, or one whose checkout is gone."""
    labels = _labels(thing)
    owner = labels.get(LABEL_CHECKOUT, "")
    return labels.get(LABEL) == wanted_name and (owner == checkout or owner not in checkouts)


def _other_owner(wanted: Wanted, found: Found) -> str:
    for thing in [*found.containers, *found.networks]:
        labels = _labels(thing)
        if labels.get(LABEL) == wanted.name and not owned(wanted.name, wanted.checkout, found.checkouts, thing):
            return labels.get(LABEL_CHECKOUT, "")
    return ""


def _subnets(network: dict[str, Any]) -> list[str]:
    return [str(entry["subnet"]) for entry in network.get("subnets") or []]


def subnet_holder(wanted: Wanted, found: Found) -> str:
    """Who else uses an address of the wanted subnet, in words; empty when nobody does."""
    subnet = ipaddress.ip_network(wanted.subnet)
    own_links = set()
    for network in found.networks:
        if owned(wanted.name, wanted.checkout, found.checkouts, network):
            own_links.add(network.get("network_interface"))
            continue
        for other in _subnets(network):
            if subnet.version == ipaddress.ip_network(other).version and subnet.overlaps(ipaddress.ip_network(other)):
                return f"podman's network {network['name']} ({other})"
    for route in found.routes:
        if route.get("dst") == "default" or route.get("dev") in own_links:
            continue
        other_net = ipaddress.ip_network(route["dst"], strict=False)
        if subnet.version == other_net.version and subnet.overlaps(other_net):
            return f"the route to {route['dst']} ({route.get('dev', 'no interface')})"
    return ""


def _why_not_kept(container: dict[str, Any], spec: dict[str, Any]) -> str:
    try:
        had = json.loads(_labels(container).get(LABEL_SPEC, ""))
    except ValueError:
        return "it was made by another version"
    differing = [key for key in spec if had.get(key) != spec[key]]
    # A folder more than is needed does no harm: pip's settings may come from the environment of one shell only.
    if "volumes" in differing and set(spec["volumes"]) <= set(had.get("volumes", [])):
        differing.remove("volumes")
    return f"its {' and '.join(differing)} changed" if differing else ""


def make_plan(wanted: Wanted, found: Found) -> Plan:
    """Compare, and say what is to be done; or why nothing can be."""
    plan = Plan()
    other = _other_owner(wanted, found)
    if other:
        plan.refusal = (
            f"The sandbox '{wanted.name}' belongs to the checkout {other}: end it there with script/demo --down, or give this "
            "one another name and subnet, for example MUSTER_SANDBOX=muster2 MUSTER_SANDBOX_PREFIX=10.203.78."
        )
        return plan

    own_networks = [n for n in found.networks if owned(wanted.name, wanted.checkout, found.checkouts, n)]
    plan.network = not any(wanted.subnet in _subnets(network) for network in own_networks)
    plan.remove_network = plan.network and bool(own_networks)
    plan.build = not found.image

    kept = set()
    by_node = {container_name(wanted.name, node): node for node in wanted.nodes}
    for container in found.containers:
        name = _name(container)
        if not owned(wanted.name, wanted.checkout, found.checkouts, container):
            if name in by_node:
                plan.refusal = f"A container named {name} exists and is not part of a sandbox: rename or remove it."
                return plan
            continue
        node = by_node.get(name, "")
        if not node:
            why = "it is no longer in the inventory"
        elif plan.network:
            why = "its network is made anew"
        else:
            why = _why_not_kept(container, specification(wanted, node))
        if why:
            plan.remove.append({"name": name, "why": why})
            continue
        kept.add(node)
        if container.get("State") != "running":
            plan.start.append(node)

    holder = subnet_holder(wanted, found)
    if holder:
        plan.refusal = (
            f"The sandbox's subnet {wanted.subnet} is taken by {holder}: choose a free one, for example "
            "MUSTER_SANDBOX_PREFIX=10.203.78."
        )
        return plan

    for node in wanted.nodes:
        if node not in kept:
            plan.create[node] = specification(wanted, node)
    needed = IMAGE_MB * plan.build + NODE_MB * len(plan.create)
    if plan.create and found.free_mb < needed:
        plan.refusal = (
            f"{needed / 1000:.1f} GB of free space are needed for the image and {len(plan.create)} machines, and there "
            f"are {found.free_mb / 1000:.1f} GB in podman's storage."
        )
    return plan


def pip_settings(listing: str) -> dict[str, str]:
    """Settings as pip uses them, from C(pip config list): the environment outranks a file, a later file an earlier one."""
    settings: dict[str, str] = {}
    from_environment: dict[str, str] = {}
    for line in listing.splitlines():
        name, found, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if not found or section not in {"global", "install", ":env:"}:
            continue
        try:
            text = str(ast.literal_eval(value))
        except (SyntaxError, ValueError):
            continue
        (from_environment if section == ":env:" else settings)[key] = text
    return {**settings, **from_environment}


def node_pip_variables(settings: dict[str, str], ca_on_node: str) -> tuple[dict[str, Any], list[str]]:
    """Variables that hand pip's settings to the nodes, and the local folders that the nodes then need.

    Indexes in local folders are left out: their pages may point anywhere on this machine.
    """
    variables: dict[str, Any] = {}
    folders: list[str] = []
    if "://" in settings.get("index-url", "") and not settings["index-url"].startswith("file:"):
        variables["pytorch_index_url"] = settings["index-url"]
    for key, variable in _PIP_LISTS.items():
        places = []
        for place in settings.get(key, "").split():
            local = place.removeprefix("file://")
            if local.startswith("/"):
                if key == "find-links":
                    folders.append(local)
                    places.append(local)
            else:
                places.append(place)
        if places:
            variables[variable] = places
    if settings.get("cert"):
        variables["pytorch_extra_ca"] = ca_on_node
    return variables, folders


def apt_sources(listing: str, release: str) -> str:
    """Package sources of a distribution's release, from the sources that this machine itself uses.

    The listing has a line C(origin|uri|suite|codename|component) per source. Another release of the same distribution is
    served by the same mirror, under suites of its own name. What does not come from the distribution is left out.
    """
    keyrings = {"Debian": "debian-archive-keyring.gpg", "Ubuntu": "ubuntu-archive-keyring.gpg"}
    stanzas: dict[tuple[str, str, str], set[str]] = {}
    for line in listing.splitlines():
        fields = line.split("|")
        if len(fields) != 5 or fields[0] not in keyrings:
            continue
        origin, uri, suite, codename, component = fields
        own_release = codename.partition("-")[0]
        if component not in {"main", "universe"} or suite.partition("-")[2] not in {"", "updates", "security"}:
            continue
        wanted_suite = suite.replace(own_release, release or own_release, 1)
        stanzas.setdefault((origin, uri, wanted_suite), set()).add(component)
    return "\n".join(
        f"Types: deb\nURIs: {uri}\nSuites: {suite}\nComponents: {' '.join(sorted(components))}\n"
        f"Signed-By: /usr/share/keyrings/{keyrings[origin]}\n"
        for (origin, uri, suite), components in stanzas.items()
    )


def apt_settings(dump: str) -> str:
    """Lines of C(apt-config dump) that say how this machine reaches its package sources."""
    lines = (line for line in dump.splitlines() if line.startswith(_APT_SETTINGS))
    return "".join(f"{line}\n" for line in lines if not line.endswith('"";'))
