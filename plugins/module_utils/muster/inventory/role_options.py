"""Check the options of single roles: firewall, GPU stack, environments, launch users and shared data."""

from __future__ import annotations

import difflib
import ipaddress
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..gpu_stack import nccl_conf, nccl_ib, nccl_tests, rdma
from ..launch.manager import CLUSTER_USER
from ..launch_users.request import KEYS, faults, limit_faults
from ..pytorch import environments
from ..pytorch.environments import DEFAULT, OPTION, OWN
from ..pytorch.request import EnvironmentRequestError, make_plain_request
from ..shared_data.request import faults as mount_faults
from .job import place
from .model import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import Inventory, InventoryNode

ANY_PYTHON = "3.12"  # validity of a pin does not depend on the Python version
_KEYS = ("port", "proto", "from", "comment")
_PROTOS = ("tcp", "udp", "any")


def environments_can_be_built(inventory: Inventory) -> Iterator[Problem]:
    for problem in inventory.environments:
        given = problem.option in inventory.given
        yield replace(problem, place=place(inventory, problem.option)) if given else problem


def launches_name_one(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes[:1]:
        name, where = node.text("launch_environment"), place(inventory, "launch_environment")
        declared = [node.variables.get(option) for option in (OPTION, OWN)]
        shared, own = ([*one] if isinstance(one, dict) else [] for one in declared)
        known = [DEFAULT, *shared, *own]
        if name and name not in known:
            what = f"launch_environment is {name!r}, which is not an environment of this cluster"
            yield Problem(where, what, f"Use one of {', '.join(known)}")
        elif name in own and node.text("launch_as") == CLUSTER_USER:
            yield Problem(where, environments.only_own(name), "Set launch_as to self")


def users_are_accounts(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        for what, fix in faults(node.variables.get("launch_users"), node.text("cluster_user")):
            yield Problem(node.name, what, fix, option="launch_users")


def limits_can_be_set(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        limits = {key: node.variables.get(f"launch_users_{key}") for key in KEYS}
        for what, fix in limit_faults(limits):
            option = f"launch_users_{what}"
            yield Problem(node.name, f"{option} is not a valid limit", fix, option=option.split(maxsplit=1)[0])


def users_root_is_a_path(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        root = node.text("cluster_users_root")
        if "cluster_users_root" in node.variables and not (root.startswith("/") and root.strip("/")):
            what = f"cluster_users_root is {root!r}, which is not an absolute path"
            fix = "Set an absolute path other than /"
            yield Problem(node.name, what, fix, option="cluster_users_root")


def nodes_exist(inventory: Inventory) -> Iterator[Problem]:
    nodes = [node.name for node in inventory.nodes]
    for node in inventory.nodes:
        chosen = node.variables.get("workbench_nodes")
        for name in chosen if isinstance(chosen, list) else ():
            if name not in nodes:
                close = difflib.get_close_matches(str(name), nodes, n=1)
                hint = f"Correct it to {close[0]} if that was meant" if close else "Add it to gpu_nodes or remove it"
                what = f"workbench_nodes contains {name}, which is not in gpu_nodes"
                yield Problem(node.name, what, hint, option="workbench_nodes")


def packages_are_pins(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        packages, version = node.variables.get("workbench_packages", []), node.text("workbench_jupyterlab") or "1"
        try:
            if isinstance(packages, list):
                make_plain_request("jupyterlab", version=version, packages=[*map(str, packages)], python=ANY_PYTHON)
        except EnvironmentRequestError as problem:
            what, _, fix = str(problem).rpartition(". ")
            yield Problem(node.name, what, fix, option="workbench_packages")


def entries_can_be_rules(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        entries = node.variables.get("firewall_allow")
        for number, entry in enumerate(entries if isinstance(entries, list) else (), 1):
            for what, fix in _faults(entry):
                yield Problem(node.name, f"entry {number} of firewall_allow {what}", fix, option="firewall_allow")


def waivers_are_ports_or_names(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        entries = node.variables.get("firewall_cut")
        for number, entry in enumerate(entries if isinstance(entries, list) else (), 1):
            text = str(entry).strip()
            port, _, proto = text.partition("/")
            is_port = port.isdigit() and port_range(port) is not None and (proto or "tcp") in ("tcp", "udp")
            if not is_port and (not text or text[0].isdigit()):
                what = f"entry {number} of firewall_cut is {text[:40]!r}, which is not a port or a name"
                fix = "Write a port such as 8080/tcp, or the name of a process such as slurmd"
                yield Problem(node.name, what, fix, option="firewall_cut")


def ranges_are_ranges(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        for name in ("firewall_ephemeral_range", "firewall_launch_ports"):
            if name not in node.variables:
                continue
            ports = port_range(node.variables[name])
            if ports is None or ports[0] < 1024:
                what = f"{name} is {str(node.variables[name])[:80]!r}, which is not a port range between 1024 and 65535"
                fix = 'Set the first and the last port, such as "32768-40959"'
                yield Problem(node.name, what, fix, option=name)


def port_range(value: Any) -> tuple[int, int] | None:
    """Return the first and last port of a number or of text such as "9100-9110"; None for any other value."""
    match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", str(value)[:20].strip(), re.ASCII)
    if isinstance(value, (bool, float)) or match is None:
        return None
    first, last = int(match[1]), int(match[2] or match[1])
    return (first, last) if 1 <= first <= last <= 65535 else None


def _faults(entry: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(entry, dict):
        return  # unreadable_values reports it
    for key in entry:
        if key not in _KEYS:
            yield f"has the unknown key {str(key)[:40]!r}", f"Use the keys {', '.join(_KEYS)}"
    if port_range(entry.get("port")) is None:
        yield (
            f"has the invalid port {str(entry.get('port'))[:40]!r}" if "port" in entry else "has no port",
            'Use a number from 1 to 65535, or a range in quotes such as "9100-9110"',
        )
    if str(entry.get("proto", "tcp")).lower() not in _PROTOS:
        yield f"has the invalid proto {str(entry['proto'])[:40]!r}", f"Use one of {', '.join(_PROTOS)}"
    for source in _list(entry.get("from")):
        if not _is_network(source):
            yield (
                f"allows {str(source)[:60]!r}, which is neither an IP address nor a network",
                "Use an address such as 10.0.0.7 or a network without host bits such as 10.0.0.0/24, not a host name",
            )


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _is_network(value: Any) -> bool:
    # ipaddress reads a number as an address: 7 as 0.0.0.7.
    if not isinstance(value, str):
        return False
    try:
        ipaddress.ip_network(value)
    except ValueError:
        return value == "any"
    return True


def _toolkits(node: InventoryNode) -> list[Any]:
    versions = node.variables.get("cuda_toolkit_versions")
    return versions if isinstance(versions, list) else []


def toolkits_are_versions(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        for version in _toolkits(node):
            if not re.fullmatch(r"\d+\.\d+", str(version), re.ASCII):
                fix = 'Set the major and minor version, such as "13.0"'
                what = f"cuda_toolkit_versions contains {version!r}, which is not a version"
                yield Problem(node.name, what, fix, option="cuda_toolkit_versions")
        default = node.text("cuda_toolkit_default")
        if default and default not in _toolkits(node):
            what = f"cuda_toolkit_default is {default}, which is not in cuda_toolkit_versions"
            fix = "Add it to cuda_toolkit_versions, or leave cuda_toolkit_default empty"
            yield Problem(node.name, what, fix, option="cuda_toolkit_default")


def nccl_conf_is_a_mapping(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        if "nccl_conf" not in node.variables:
            continue
        request = node.variables["nccl_conf"]
        for what, fix in nccl_conf.request_problems(request):
            yield Problem(node.name, what, fix, option="nccl_conf")
        if isinstance(request, dict) and node.variables.get("nccl_install") is not True:
            what = "nccl_conf sets variables, but nccl_install is false, so /etc/nccl.conf is not written"
            fix = "Set nccl_install to true, or add the variables to /etc/nccl.conf yourself"
            yield Problem(node.name, what, fix, option="nccl_conf")


def fabric_options_can_be_had(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        hca = node.variables.get("nccl_ib_hca")
        options = nccl_ib.Options(
            hca=tuple(map(str, hca)) if isinstance(hca, list) else (),
            gid_index=node.text("nccl_ib_gid_index"),
            pkey=node.text("nccl_ib_pkey"),
            traffic_class=node.text("nccl_ib_tc"),
            service_level=node.text("nccl_ib_sl"),
        )
        for what, fix in nccl_ib.request_problems(options, node.variables.get("nccl_conf", "auto")):
            yield Problem(node.name, what, fix)
        request = (node.text(f"rdma_{name}") for name in ("userspace", "doca_url", "doca_key"))
        for what, fix in rdma.request_problems(*request):
            yield Problem(node.name, what, fix)


def nccl_tests_can_be_built(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        version, source, digest = (node.text(f"nccl_tests_{name}") for name in ("version", "source", "sha256"))
        nccl = node.variables.get("nccl_install") is True
        for what, fix in nccl_tests.request_problems(version, source, digest, _toolkits(node), nccl=nccl):
            yield Problem(node.name, what, fix)


def mounts_can_be_had(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        mounts = node.variables.get("shared_data_mounts", ())
        for what, fix in mount_faults(mounts, node.text("shared_data_scratch")):
            yield Problem(node.name, f"shared_data: {what}", fix, option="shared_data_mounts")
