"""What the sandbox on this machine lacks, judged from what a look at the machine has found."""

from __future__ import annotations

import ast
import ipaddress
import json
from dataclasses import dataclass, field
from typing import Any, TypedDict

from ..verdict.commands import playbook
from ..verdict.words import plural

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


# More than this no step needs.
_AMPLE = {"nofile": 20000, "nproc": 10000}

# MKNOD is for podman in a machine: its containers get a /dev of their own, and its storage marks what was removed.
_CAPABILITIES = ("SYS_ADMIN", "NET_ADMIN", "NET_RAW", "SYS_PTRACE", "MKNOD")


@dataclass(frozen=True)
class SandboxRequest:
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
class SandboxFacts:
    """What is on this machine."""

    containers: list[dict[str, Any]]
    networks: list[dict[str, Any]]
    routes: list[dict[str, Any]]
    checkouts: set[str]
    image: bool
    free_mb: int


class Specification(TypedDict):
    """Everything that, when it differs, means that a node has to be made anew."""

    image: str
    address: str
    environment: dict[str, str]
    volumes: list[str]


@dataclass
class SandboxPlan:
    """The steps from what was found to what is wanted."""

    refusal: str = ""
    build: bool = False
    network: bool = False
    remove_network: bool = False
    remove: dict[str, str] = field(default_factory=dict)
    start: list[str] = field(default_factory=list)
    create: dict[str, Specification] = field(default_factory=dict)

    @property
    def removal(self) -> str:
        """The containers that have to go and why, for people."""
        return ", ".join(f"{name} ({why})" if why else name for name, why in self.remove.items())

    @property
    def machines(self) -> bool:
        """Whether the network or a machine is not as wanted."""
        return bool(self.network or self.remove or self.start or self.create)


def container_name(sandbox: str, node: str) -> str:
    """Name of a node's container."""
    return f"{sandbox}-{node}"


def specification(wanted: SandboxRequest, node: str) -> Specification:
    return {
        "image": wanted.image,
        "address": wanted.nodes[node],
        "environment": {**wanted.environment, "MUSTER_ADMIN_KEY": wanted.admin_key},
        "volumes": sorted(wanted.volumes),
    }


def run_command(
    sandbox: str, checkout: str, node: str, spec: Specification, limits: list[str], devices: list[str]
) -> list[str]:
    """Return the words of the command that makes and starts a node. limits: as ulimits returns them."""
    # Made from the address: a machine made anew is reached at once, before its neighbours forget the old one.
    mac = ":".join(["02", "42", *(f"{int(part):02x}" for part in spec["address"].split("."))])
    several = {
        "cap-add": _CAPABILITIES,
        "ulimit": limits,
        "device": devices,
        "volume": spec["volumes"],
        "env": [f"{name}={value}" for name, value in spec["environment"].items()],
        "label": [f"{LABEL}={sandbox}", f"{LABEL_CHECKOUT}={checkout}", f"{LABEL_SPEC}={json.dumps(spec)}"],
    }
    return [
        *("podman", "--runtime=runc", "run", "--detach", "--systemd=always"),
        *(f"--name={container_name(sandbox, node)}", f"--hostname={node}"),
        *(f"--network={sandbox}", f"--ip={spec['address']}", f"--mac-address={mac}"),
        # Otherwise podman mounts its own /etc/hosts, which then cannot be replaced.
        "--no-hosts",
        # A reboot ends the container, and this starts it again.
        "--restart=always",
        # An init mounts file systems, which podman's own profile forbids where the host has AppArmor.
        "--security-opt=apparmor=unconfined",
        "--http-proxy=false",
        *(f"--{name}={value}" for name, values in several.items() for value in values),
        spec["image"],
    ]


def labels(thing: dict[str, Any]) -> dict[str, str]:
    """Labels of a container or network, as podman spells them for either."""
    return thing.get("Labels") or thing.get("labels") or {}


def _name(container: dict[str, Any]) -> str:
    names = container.get("Names") or [""]
    return str(names[0] if isinstance(names, list) else names)


def _mine(name: str, checkout: str, found: SandboxFacts, thing: dict[str, Any]) -> bool:
    """Whether a container or network is this checkout's to change: its own, or one whose checkout is gone."""
    has = labels(thing)
    owner = has.get(LABEL_CHECKOUT, "")
    return has.get(LABEL) == name and (owner == checkout or owner not in found.checkouts)


def _belongs_to_another(name: str, checkout: str, found: SandboxFacts) -> str:
    """Sentence that names the checkout to which a sandbox of this name belongs; empty when there is none."""
    for thing in [*found.containers, *found.networks]:
        if labels(thing).get(LABEL) == name and not _mine(name, checkout, found, thing):
            return (
                f"The sandbox '{name}' belongs to the checkout {labels(thing)[LABEL_CHECKOUT]}: end it there with "
                "script/demo --down, or give this one another name and subnet, for example "
                "MUSTER_SANDBOX=muster2 MUSTER_SANDBOX_PREFIX=10.203.78."
            )
    return ""


def _subnets(network: dict[str, Any]) -> list[str]:
    return [str(entry["subnet"]) for entry in network.get("subnets") or []]


def _subnet_holder(wanted: SandboxRequest, found: SandboxFacts) -> str:
    """Who else uses an address of the wanted subnet, in words; empty when nobody does."""
    subnet = ipaddress.IPv4Network(wanted.subnet)
    own_links = set()
    for network in found.networks:
        if _mine(wanted.name, wanted.checkout, found, network):
            own_links.add(network.get("network_interface"))
            continue
        for other in _subnets(network):
            if ":" not in other and subnet.overlaps(ipaddress.IPv4Network(other)):
                return f"podman's network {network['name']} ({other})"
    for route in found.routes:
        if route["dst"] == "default" or route.get("dev") in own_links:
            continue
        if subnet.overlaps(ipaddress.IPv4Network(route["dst"], strict=False)):
            return f"the route to {route['dst']} ({route.get('dev', 'no interface')})"
    return ""


def _why_not_kept(container: dict[str, Any], spec: Specification) -> str:
    try:
        had = json.loads(labels(container).get(LABEL_SPEC, ""))
    except ValueError:
        return "it was made by another version"
    differing = [key for key, value in spec.items() if had.get(key) != value]
    # A folder more than is needed does no harm: pip's settings may come from the environment of one shell only.
    if "volumes" in differing and set(spec["volumes"]) <= set(had.get("volumes", [])):
        differing.remove("volumes")
    return f"its {' and '.join(differing)} changed" if differing else ""


def _why_not_kept_in(wanted: SandboxRequest, node: str, container: dict[str, Any], new_network: bool) -> str:
    if not node:
        return "it is no longer in the inventory"
    if new_network:
        return "its network is made anew"
    return _why_not_kept(container, specification(wanted, node))


def _judge_machines(wanted: SandboxRequest, found: SandboxFacts, plan: SandboxPlan) -> None:
    """Sort the machines into those that are kept, started, removed and made."""
    by_name = {container_name(wanted.name, node): node for node in wanted.nodes}
    kept = set()
    for container in found.containers:
        name = _name(container)
        if not _mine(wanted.name, wanted.checkout, found, container):
            if name in by_name:
                plan.refusal = f"A container named {name} exists and is not part of a sandbox: rename or remove it."
            continue
        node = by_name.get(name, "")
        why = _why_not_kept_in(wanted, node, container, plan.network)
        if why:
            plan.remove[name] = why
            continue
        kept.add(node)
        if container.get("State") != "running":
            plan.start.append(node)
    plan.create = {node: specification(wanted, node) for node in wanted.nodes if node not in kept}


def make_plan(wanted: SandboxRequest, found: SandboxFacts) -> SandboxPlan:
    """Compare, and say what is to be done; or why nothing can be."""
    refusal = _belongs_to_another(wanted.name, wanted.checkout, found)
    if refusal:
        return SandboxPlan(refusal=refusal)
    holder = _subnet_holder(wanted, found)
    if holder:
        return SandboxPlan(
            refusal=f"The sandbox's subnet {wanted.subnet} is taken by {holder}: choose a free one, for example "
            "MUSTER_SANDBOX_PREFIX=10.203.78."
        )

    own_networks = [n for n in found.networks if _mine(wanted.name, wanted.checkout, found, n)]
    plan = SandboxPlan(build=not found.image)
    plan.network = not any(wanted.subnet in _subnets(network) for network in own_networks)
    plan.remove_network = plan.network and bool(own_networks)
    _judge_machines(wanted, found, plan)

    needed = IMAGE_MB * plan.build + NODE_MB * len(plan.create)
    if plan.create and found.free_mb < needed:
        plan.refusal = (
            f"The sandbox needs {needed / 1000:.1f} GB of free space, and podman's storage has "
            f"{found.free_mb / 1000:.1f} GB left: {len(plan.create)} machines are to be made."
        )
    return plan


def plan_end(name: str, checkout: str, found: SandboxFacts) -> SandboxPlan:
    """Everything that a sandbox has on this machine, to be removed."""
    return SandboxPlan(
        refusal=_belongs_to_another(name, checkout, found),
        remove={_name(thing): "" for thing in found.containers if _mine(name, checkout, found, thing)},
        remove_network=any(_mine(name, checkout, found, network) for network in found.networks),
    )


def outcome(name: str, nodes: int) -> str:
    """What there is when the playbook has done its work; no nodes: it was to remove the sandbox."""
    if not nodes:
        return f"nothing of the sandbox {name} is left on this machine but its image, where another one uses it"
    return f"the sandbox {name} has {plural(nodes, 'machine')}; next: {playbook('site.yml')}"


def ulimits(hard: dict[str, int]) -> list[str]:
    """Limits that podman may set for a node without more rights than its caller has, whose hard limits these are.

    podman lowers its own number of processes to pid_max. A negative limit is none.
    """
    return [
        f"{name}={limit}:{limit}"
        for name, ample in _AMPLE.items()
        for limit in [ample if hard[name] < 0 else min(hard[name], ample)]
    ]


def pip_settings(listing: str) -> dict[str, str]:
    """Settings as pip uses them, from C(pip config list): the environment outranks files, a later file others."""
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


def apt_settings(dump: str) -> str:
    """Lines of C(apt-config dump) that say how this machine reaches its package sources."""
    lines = (line for line in dump.splitlines() if line.startswith(_APT_SETTINGS))
    return "".join(f"{line}\n" for line in lines if not line.endswith('"";'))
