"""Plan the changes to the sandbox from the state of this machine."""

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

# Space for the image, and for a node with PyTorch while its next environment is built.
IMAGE_MB = 1500
NODE_MB = 1500

# pip settings for package sources, and the variables that pass them to the nodes.
_PIP_LISTS = {"extra-index-url": "pytorch_extra_index_urls", "find-links": "pytorch_find_links"}

# apt settings that a node may need to reach the package sources of this machine.
_APT_SETTINGS = ("Acquire::http::", "Acquire::https::", "Acquire::Check-", "Acquire::Retries", "Acquire::ForceIPv")


# Enough for every step.
_AMPLE = {"nofile": 20000, "nproc": 10000}

# MKNOD is for podman in a node: its containers get their own /dev, and its storage uses whiteout devices.
_CAPABILITIES = ("SYS_ADMIN", "NET_ADMIN", "NET_RAW", "SYS_PTRACE", "MKNOD")


@dataclass(frozen=True)
class SandboxRequest:
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
    """The state of this machine, as far as it concerns the sandbox."""

    containers: list[dict[str, Any]]
    networks: list[dict[str, Any]]
    routes: list[dict[str, Any]]
    checkouts: set[str]
    image: bool
    free_mb: int


class Specification(TypedDict):
    """Properties of a node that can be changed only by creating a new container."""

    image: str
    address: str
    environment: dict[str, str]
    volumes: list[str]


@dataclass
class SandboxPlan:
    refusal: str = ""
    build: bool = False
    network: bool = False
    remove_network: bool = False
    remove: dict[str, str] = field(default_factory=dict)
    start: list[str] = field(default_factory=list)
    create: dict[str, Specification] = field(default_factory=dict)

    @property
    def removal(self) -> str:
        """Describe to users which containers are removed and why."""
        return ", ".join(f"{name} ({why})" if why else name for name, why in self.remove.items())

    @property
    def machines(self) -> bool:
        """Return whether the network or any container must change."""
        return bool(self.network or self.remove or self.start or self.create)


def container_name(sandbox: str, node: str) -> str:
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
    """Return the command that creates and starts a node. limits: result of ulimits()."""
    # Derived from the address, so that a new container is reachable before ARP caches expire.
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
        # Otherwise podman mounts its own /etc/hosts, which cannot be replaced.
        "--no-hosts",
        # A reboot ends the container; this option starts it again.
        "--restart=always",
        # An init system mounts file systems, which podman's AppArmor profile forbids.
        "--security-opt=apparmor=unconfined",
        "--http-proxy=false",
        *(f"--{name}={value}" for name, values in several.items() for value in values),
        spec["image"],
    ]


def labels(thing: dict[str, Any]) -> dict[str, str]:
    """Return the labels of a container or network. podman uses a different key for each of the two."""
    return thing.get("Labels") or thing.get("labels") or {}


def _name(container: dict[str, Any]) -> str:
    names = container.get("Names") or [""]
    return str(names[0] if isinstance(names, list) else names)


def _mine(name: str, checkout: str, found: SandboxFacts, thing: dict[str, Any]) -> bool:
    """Return whether this checkout may change a container or network: its own one, or one whose
    checkout was deleted.
    """
    has = labels(thing)
    owner = has.get(LABEL_CHECKOUT, "")
    return has.get(LABEL) == name and (owner == checkout or owner not in found.checkouts)


def _belongs_to_another(name: str, checkout: str, found: SandboxFacts) -> str:
    """Return a sentence about another checkout that has a sandbox with this name; "" if there is none."""
    for thing in [*found.containers, *found.networks]:
        if labels(thing).get(LABEL) == name and not _mine(name, checkout, found, thing):
            return (
                f"The sandbox '{name}' belongs to the checkout {labels(thing)[LABEL_CHECKOUT]}: remove it there with "
                "script/demo --down, or use another name and subnet here, for example "
                "MUSTER_SANDBOX=muster2 MUSTER_SANDBOX_PREFIX=10.203.78."
            )
    return ""


def _subnets(network: dict[str, Any]) -> list[str]:
    return [str(entry["subnet"]) for entry in network.get("subnets") or []]


def _subnet_holder(wanted: SandboxRequest, found: SandboxFacts) -> str:
    """Return who else uses addresses in the requested subnet; "" if the subnet is free."""
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
        return "created by another version"
    differing = [key for key, value in spec.items() if had.get(key) != value]
    # An extra folder is harmless, because pip's settings may come from the environment of one shell only.
    if "volumes" in differing and set(spec["volumes"]) <= set(had.get("volumes", [])):
        differing.remove("volumes")
    return f"{' and '.join(differing)} changed" if differing else ""


def _why_not_kept_in(wanted: SandboxRequest, node: str, container: dict[str, Any], new_network: bool) -> str:
    if not node:
        return "no longer in the inventory"
    if new_network:
        return "the network is created again"
    return _why_not_kept(container, specification(wanted, node))


def _judge_machines(wanted: SandboxRequest, found: SandboxFacts, plan: SandboxPlan) -> None:
    """Decide which containers are kept, started, removed or created."""
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
    """Compare the present and the requested state, and return the changes or a refusal."""
    refusal = _belongs_to_another(wanted.name, wanted.checkout, found)
    if refusal:
        return SandboxPlan(refusal=refusal)
    holder = _subnet_holder(wanted, found)
    if holder:
        return SandboxPlan(
            refusal=f"The sandbox's subnet {wanted.subnet} is used by {holder}: choose another one, for example "
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
            f"The sandbox requires {needed / 1000:.1f} GB of free space, but podman's storage has only "
            f"{found.free_mb / 1000:.1f} GB left ({len(plan.create)} new nodes)."
        )
    return plan


def plan_end(name: str, checkout: str, found: SandboxFacts) -> SandboxPlan:
    """Return the plan that removes everything that a sandbox has created on this machine."""
    return SandboxPlan(
        refusal=_belongs_to_another(name, checkout, found),
        remove={_name(thing): "" for thing in found.containers if _mine(name, checkout, found, thing)},
        remove_network=any(_mine(name, checkout, found, network) for network in found.networks),
    )


def outcome(name: str, nodes: int) -> str:
    """Return the result of the playbook. nodes: number of nodes; 0 if the sandbox was removed."""
    if not nodes:
        return f"the sandbox {name} was removed from this machine; an image that another sandbox uses is kept"
    return f"the sandbox {name} has {plural(nodes, 'node')}; next: {playbook('site.yml')}"


def ulimits(hard: dict[str, int]) -> list[str]:
    """Return the limits that podman can set for a node within the hard limits of the calling process.

    podman itself lowers the number of processes to pid_max. A negative limit means unlimited.
    """
    return [
        f"{name}={limit}:{limit}"
        for name, ample in _AMPLE.items()
        for limit in [ample if hard[name] < 0 else min(hard[name], ample)]
    ]


def pip_settings(listing: str) -> dict[str, str]:
    """Parse the output of C(pip config list).

    As in pip, environment variables override files, and later files override earlier ones.
    """
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
    """Return the variables that pass pip's settings to nodes, and the local folders that the nodes need.

    Indexes in local folders are ignored, because their pages can link to any path on this machine.
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
    """Return the lines of C(apt-config dump) that concern access to package sources."""
    lines = (line for line in dump.splitlines() if line.startswith(_APT_SETTINGS))
    return "".join(f"{line}\n" for line in lines if not line.endswith('"";'))
