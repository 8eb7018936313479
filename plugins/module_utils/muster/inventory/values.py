"""Check the values of options, individually and in combination."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from typing import TYPE_CHECKING

from ..gpu_stack.table import numbers
from ..known.rows import TORCH_RELEASES
from ..network.mtu import LEAST_SECONDS, request_problem
from ..road.steps import STEPS
from .model import CLUSTER, Problem, join, shown
from .role_options import port_range

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import Inventory

# Options that must be the same on all nodes of a cluster.
CLUSTER_WIDE = tuple(option for step in STEPS for option in step.agree)
PORTS = range(1024, 65536)
# Default of net.ipv4.ip_local_port_range: any outgoing connection may use one of these ports.
EPHEMERAL_PORTS = range(32768, 61000)
_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}=?")
_NAMED = (
    ("pytorch_variant", r"auto|cpu|cuda|cu\d{2,4}", "Set auto, cpu, cuda, or a build such as cu126"),
    (
        "gpu_stack_driver",
        r"|\d{3}(\.\d+){0,2}",
        'Set a branch such as "580", an exact version such as "580.159.04", or ""',
    ),
)
CLUSTER_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
_PUBLIC_KEY = re.compile(r"(ssh-(ed25519|rsa)|ecdsa-sha2-nistp(256|384|521)) [A-Za-z0-9+/]{40,}={0,3}( .*)?")


def unreadable_values(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        for name, error in node.errors.items():
            yield Problem(inventory.given.get(name, node.name), f"{name} {error}", f"Correct {name}", option=name)


def misspelt_options(inventory: Inventory) -> Iterator[Problem]:
    prefixes = tuple({option.split("_")[0] + "_" for option in inventory.options})
    meant: dict[str, str] = {}
    for name in dict.fromkeys(name for node in inventory.nodes for name in node.unknown if name not in inventory.given):
        # A site may have its own variables: report only names very similar to an option.
        cutoff = 0.85 if name.startswith(prefixes) else 0.9
        meant.update((name, option) for option in difflib.get_close_matches(name, inventory.options, 1, cutoff))
    for node in inventory.nodes:
        for name in node.unknown:
            if name in meant:
                what = f"{name} is not a Muster option"
                fix = f"Correct it to {meant[name]}, or rename the variable"
                yield Problem(node.name, what, fix, option=name)


def cluster_wide_values_agree(inventory: Inventory) -> Iterator[Problem]:
    for name in CLUSTER_WIDE:
        holders: dict[str, list[str]] = defaultdict(list)
        for node in inventory.nodes:
            if name in node.variables:
                holders[shown(node.variables[name])].append(node.name)
        if len(holders) > 1:
            values = "; ".join(f"{value} on {join(names, [])}" for value, names in holders.items())
            what = f"{name} differs between nodes: {values}"
            fix = f"Set {name} only in group_vars/all.yml"
            yield Problem(CLUSTER, what, fix, option=name)


def names_are_plain(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        name = node.text("cluster_name")
        if "cluster_name" in node.variables and not re.fullmatch(CLUSTER_NAME, name):
            what = f"cluster_name is {name!r}, which cannot be used in paths and unit names"
            fix = "Use letters, digits, dots, - and _; start with a letter or digit"
            yield Problem(node.name, what, fix, option="cluster_name")


def user_is_unprivileged(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        user = node.text("cluster_user")
        if "cluster_user" not in node.variables:
            continue
        if user == "root":
            what = "cluster_user is root"
            fix = "Set an unprivileged user: training must not run as root"
            yield Problem(node.name, what, fix, option="cluster_user")
        elif not re.fullmatch(r"[a-z_][a-z0-9_-]{0,31}", user):
            what = f"cluster_user is {user!r}, which is not a valid user name"
            fix = "Use at most 32 lower-case letters, digits, - and _; start with a letter"
            yield Problem(node.name, what, fix, option="cluster_user")


def torch_version_is_exact(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        version = node.text("cluster_torch_version")
        if "cluster_torch_version" in node.variables and not re.fullmatch(
            r"\d+\.\d+\.\d+((a|b|rc)\d+)?(\+\w+)?", version
        ):
            what = f"cluster_torch_version is {version!r}, not an exact version"
            fix = 'Set all three numbers, such as "2.13.0"'
            yield Problem(node.name, what, fix, option="cluster_torch_version")


def builds_and_drivers_are_named(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        for name, pattern, fix in _NAMED:
            value = node.text(name)
            if name in node.variables and not re.fullmatch(pattern, value, re.ASCII):
                yield Problem(node.name, f"{name} is {value!r}, which is not valid", fix, option=name)


def torch_version_is_known(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        release = re.fullmatch(r"(\d+\.\d+\.\d+)(\+\w+)?", node.text("cluster_torch_version"), re.ASCII)
        nearest = nearest_release(release[1]) if release else None
        if release and nearest:
            what = f"cluster_torch_version is {release[1]}, which PyTorch never released"
            fix = f'Set a released version, such as "{nearest}" (the closest)'
            yield Problem(node.name, what, fix, option="cluster_torch_version")


def master_port_is_free_to_use(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        port = node.number("cluster_master_port")
        if port is None:
            continue
        if port not in PORTS:
            what = f"cluster_master_port is {port}, not a port from {PORTS[0]} to {PORTS[-1]}"
            fix = "Choose another port, such as 29500"
            yield Problem(node.name, what, fix, option="cluster_master_port")
        elif port in EPHEMERAL_PORTS:
            yield Problem(
                node.name,
                f"cluster_master_port is {port}, which is in Linux's ephemeral port range"
                f" ({EPHEMERAL_PORTS[0]} to {EPHEMERAL_PORTS[-1]}), so an outgoing connection might already use it",
                f"Choose a port below {EPHEMERAL_PORTS[0]}, such as 29500",
                option="cluster_master_port",
            )


def ssh_port_is_a_port(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        port = node.text("ansible_port")
        if port and not (port.isdecimal() and 0 < int(port) < 65536):
            what = f"ansible_port is {port}, which is not a port"
            yield Problem(node.name, what, "Set a number from 1 to 65535", option="ansible_port")


def master_port_is_outside_the_pinned_range(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        port = node.number("cluster_master_port")
        ends = port_range(node.variables.get("firewall_ephemeral_range"))
        if node.variables.get("firewall_tight") is True and port is not None and ends and ends[0] <= port <= ends[1]:
            yield Problem(
                node.name,
                f"cluster_master_port is {port}, which is in firewall_ephemeral_range ({ends[0]} to {ends[1]}),"
                " so an outgoing connection might already use it",
                "Choose a port outside this range",
                option="cluster_master_port",
            )


def training_mtu_is_one(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        mtu = node.number("mtu_training")
        problem = request_problem(mtu) if mtu is not None else None
        if problem:
            yield Problem(node.name, *problem, option="mtu_training")
        seconds = node.number("mtu_confirm_seconds")
        if seconds is not None and seconds < LEAST_SECONDS:
            what = f"mtu_confirm_seconds is {seconds}, which is too short"
            fix = f"Set at least {LEAST_SECONDS}, because all nodes must be changed and tested within this time"
            yield Problem(node.name, what, fix)


def processes_fit_the_gpus(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        gpus = node.number("cluster_gpus")
        nproc = node.number("cluster_nproc_per_node")
        if gpus is not None and gpus < 0:
            what = f"cluster_gpus is {gpus}, which is not valid"
            fix = "Set the number of GPUs, or 0 to train on the CPU"
            yield Problem(node.name, what, fix, option="cluster_gpus")
        if nproc is not None and nproc < 1:
            what = f"cluster_nproc_per_node is {nproc}, which is not valid"
            fix = "Write 1 or more"
            yield Problem(node.name, what, fix, option="cluster_nproc_per_node")
        if gpus is not None and nproc is not None and 0 < gpus < nproc:
            what = f"cluster_nproc_per_node is {nproc}, but the node has {gpus} GPUs (cluster_gpus)"
            fix = "Each process requires its own GPU: lower cluster_nproc_per_node, or correct cluster_gpus"
            yield Problem(node.name, what, fix, option="cluster_nproc_per_node")


def nccl_has_gpus(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.participants():
        if node.text("cluster_backend") == "nccl" and node.number("cluster_gpus") == 0:
            what = "cluster_backend is nccl, which requires GPUs, but cluster_gpus is 0"
            fix = "Set cluster_gpus to the node's number of GPUs, or cluster_backend to auto or gloo"
            yield Problem(node.name, what, fix, option="cluster_backend")


def launch_nodes_exist(inventory: Inventory) -> Iterator[Problem]:
    nodes = {node.name: node for node in inventory.nodes}
    chosen = inventory.launch_nodes()
    for name in dict.fromkeys(chosen):
        if name not in nodes:
            close = difflib.get_close_matches(name, nodes, n=1)
            hint = f"Correct it to {close[0]} if that was meant" if close else "Add it to gpu_nodes or remove it"
            what = f"cluster_launch_nodes contains {name}, which is not in gpu_nodes"
            yield Problem(CLUSTER, what, hint, option="cluster_launch_nodes")
        elif nodes[name].quarantined:
            what = "the node is in cluster_launch_nodes but quarantined (cluster_quarantined)"
            fix = "Remove the node from the list, or end the quarantine"
            yield Problem(name, what, fix)


def host_keys_are_keys(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        key = node.text("cluster_host_key")
        if key and not _FINGERPRINT.fullmatch(key) and not _PUBLIC_KEY.fullmatch(key):
            yield Problem(
                node.name,
                "cluster_host_key is neither an SSH fingerprint nor a public key",
                "Set the fingerprint shown on the node by: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub",
                option="cluster_host_key",
            )


def soak_is_of_its_mode(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        stages, mode = node.variables.get("ddp_smoke_stages"), node.text("ddp_smoke_mode") or "quick"
        if isinstance(stages, list) and "soak" in stages and mode != "soak":
            what = f"ddp_smoke_stages contains soak, but ddp_smoke_mode is {mode}, which has no soak stage"
            fix = "Set ddp_smoke_mode to soak, or remove soak from ddp_smoke_stages"
            yield Problem(node.name, what, fix, option="ddp_smoke_stages")


def nearest_release(version: str) -> str | None:
    """Return the release closest to a version that was never released; None if the version is known or newer."""
    wanted = numbers(version)
    if version in TORCH_RELEASES or wanted > numbers(TORCH_RELEASES[-1]):
        return None
    return min(TORCH_RELEASES, key=lambda release: _distance(numbers(release), wanted))


def _distance(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(abs(a - b) for a, b in zip(one, other, strict=True))
