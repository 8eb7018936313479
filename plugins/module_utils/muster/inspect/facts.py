"""Convert the data collected on a node (muster_node/looks/) into facts.

Facts that could not be collected are absent or None, with the reason in `skipped`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ..gpu_info.facts import CONTAINERS, GPU_CLASSES, NVSWITCH_CLASS, device_names
from ..network.listeners import parse_ss
from ..pytorch.existing import made_by
from .rdma import rdma_facts
from .stack import boot_facts, stack_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..nvidia_driver.facts import NextBootFacts
    from .floors import SecurityFloor

WSL = "wsl"  # the name in systemd-detect-virt, which counts WSL as a container
AMD = "0x1002"
CLOCKS = ("chrony", "systemd-timesyncd", "ntpsec", "ntp", "openntpd")
# Maximum of the kernel's clock error, in microseconds. systemd uses this limit too, not the STA_UNSYNC flag.
UNSYNCHRONISED = 16_000_000


@dataclass(frozen=True)
class InspectedNode:
    """A node: its inventory variables and its facts.

    request: the inventory variables, with defaults filled in. facts: None if the node could not be reached. why: why it
    could not be reached. platforms: supported versions of each distribution. peers: training addresses of the other
    nodes, by name. floors: the security floors.
    """

    name: str
    request: Mapping[str, Any]
    facts: Mapping[str, Any] | None
    why: str = ""
    platforms: Mapping[str, list[str]] = field(default_factory=dict)
    peers: Mapping[str, str] = field(default_factory=dict)
    floors: tuple[SecurityFloor, ...] = ()

    @property
    def seen(self) -> Mapping[str, Any]:
        if self.facts is None:
            raise ValueError(f"{self.name} was not inspected")
        return self.facts

    @property
    def address(self) -> str:
        return str(self.request["cluster_address"])

    @property
    def training_interface(self) -> str:
        """The interface with the training address; "" if there is none."""
        interfaces = self.seen["network"]["interfaces"]
        return next((name for name, seen in interfaces.items() if self.address in seen["addresses"]), "")


def facts(looks: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a node.

    looks: the data of each collector, by subject. Only the subject "system" is required.
    """
    skipped: dict[str, str] = {}
    system = _system(looks["system"])
    root = looks["system"]["root"]
    # Fact -> the required subjects, and the function that creates the fact.
    made_from: dict[str, tuple[set[str], Callable[[], Any]]] = {
        "users": ({"users"}, lambda: looks["users"]),
        "gpus": ({"pci"}, lambda: _gpus(looks["pci"], system, skipped)),
        "secure_boot": ({"boot"}, lambda: _secure_boot(looks["boot"], system, skipped)),
        "key_enrolled": ({"boot"}, lambda: key_enrolled(looks["boot"])),
        "network": ({"network"}, lambda: _network(looks["network"], skipped)),
        "listeners": ({"listeners"}, lambda: _listeners(looks["listeners"], root, skipped)),
        "firewall": ({"services"}, lambda: _firewall(looks["services"], skipped)),
        "clock": ({"clock", "services"}, lambda: _clock(looks["clock"], looks["services"]["active"], system, skipped)),
        "services": ({"services"}, lambda: _running(looks["services"]["active"])),
        "packages": ({"packages"}, lambda: _packages(looks["packages"], skipped)),
        "disk": ({"disk"}, lambda: looks["disk"]),
        "stack": ({"stack"}, lambda: stack_facts(looks["stack"], skipped)),
        "rdma": ({"rdma"}, lambda: rdma_facts(looks["rdma"])),
        "environments": ({"environments"}, lambda: _environments(looks["environments"], skipped)),
    }
    return {
        "system": system,
        "looked_as": {"user": looks["system"]["looked_as"], "root": root},
        "identity": _identity(looks["system"]),
        **{name: make() for name, (needed, make) in made_from.items() if needed <= looks.keys()},
        "skipped": skipped,
    }


def _environments(look: Mapping[str, Any], skipped: dict[str, str]) -> list[dict[str, Any]]:
    """Return the environments found, each as {path, made_by, python, torch, usable}."""
    if look["why"]:
        skipped["environments"] = look["why"]
    kept = ("path", "python", "torch", "usable")
    return [{**{name: one[name] for name in kept}, "made_by": made_by(one["marks"])} for one in look["found"]]


def _running(active: Mapping[str, str]) -> list[str]:
    return [name for name, state in active.items() if state == "active"]


def _system(look: Mapping[str, Any]) -> dict[str, Any]:
    release = dict(re.findall(r'^([A-Z_]+)=["\']?(.*?)["\']?$', look["os_release"], re.MULTILINE))
    return {
        "id": release.get("ID", ""),
        "version": release.get("VERSION_ID", ""),
        "name": release.get("PRETTY_NAME", ""),
        "kernel": look["kernel"],
        "machine": look["machine"],
        "python": ".".join(map(str, look["python"])),
        "python_path": look["python_path"],
        "init": look["init"],
        "virtual": "" if look["virt"] == "none" else look["virt"],
        "container": look["virt"] in CONTAINERS,
    }


def _identity(look: Mapping[str, Any]) -> dict[str, str]:
    return {
        "machine": machine_digest(look["machine_id"]),
        "boot": look["boot_id"],
        "host_key": fingerprint(look["host_key"]),
    }


def machine_digest(machine_id: str) -> str:
    """Return a digest that identifies the machine. The machine ID itself is confidential (man machine-id)."""
    return hashlib.sha256(f"muster:{machine_id}".encode()).hexdigest()[:16] if machine_id else ""


def fingerprint(public_key: str) -> str:
    """Return the fingerprint of an SSH public key as `ssh-keygen -l` prints it; "" for an invalid key."""
    words = public_key.split()
    try:
        blob = base64.b64decode(words[1], validate=True)
    except (IndexError, binascii.Error):
        return ""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def next_boot_facts(look: Mapping[str, Any]) -> NextBootFacts:
    """Return the facts about the next boot. look: data of the collector next_boot."""
    firmware = look["firmware"]
    return {
        **boot_facts(look),
        "secure_boot": secure_boot(firmware) if firmware else None,
        "key_enrolled": key_enrolled(firmware) if firmware else None,
    }


def _gpus(look: Mapping[str, Any], system: Mapping[str, Any], skipped: dict[str, str]) -> dict[str, Any]:
    if look["why"]:
        skipped["gpus"] = look["why"]
    elif system["virtual"] == WSL:
        skipped["gpus"] = "under WSL, Windows controls the PCI bus"
    elif system["container"]:
        skipped["gpus"] = f"a container ({system['virtual']}) shows the host's PCI bus, with GPUs that it cannot use"
    names = device_names(look["catalogue"])
    devices = [
        {
            "slot": slot,
            "id": f"10de:{device['device'].removeprefix('0x')}",
            "name": names.get(device["device"].removeprefix("0x"), ""),
            "driver": device["driver"],
        }
        for slot, device in sorted(look["devices"].items())
        if device["class"].startswith(GPU_CLASSES)
    ]
    switches = [slot for slot, device in look["devices"].items() if device["class"].startswith(NVSWITCH_CLASS)]
    version = re.search(r"Kernel Module.*?\s(\d+\.\d+[\d.]*)\s", look["driver_version"])
    return {
        "devices": devices,
        "amd": sum(device["vendor"] == AMD for device in look["others"].values()),
        "nvswitches": len(switches),
        "driver_version": version[1] if version else "",
        "modules": sorted(set(re.findall(r"^(nvidia|nouveau|nova_core|vfio_pci) ", look["modules"], re.MULTILINE))),
    }


def _secure_boot(look: Mapping[str, Any], system: Mapping[str, Any], skipped: dict[str, str]) -> bool | None:
    known = secure_boot(look)
    if system["container"] and not (look["efi"] and known is not None):
        skipped["secure_boot"] = f"a container ({system['virtual']}) cannot read the host's firmware"
        return None
    if known is None:
        skipped["secure_boot"] = "the firmware variables cannot be read, and mokutil is missing"
    return known


def secure_boot(look: Mapping[str, Any]) -> bool | None:
    """Return whether Secure Boot is enabled; None if unknown."""
    if look["variable"]:
        return bool(look["variable"][-1])  # four bytes of attributes, then the value
    if "SecureBoot" in look["mokutil"]:
        return "SecureBoot enabled" in look["mokutil"]
    return None if look["efi"] else False  # Secure Boot requires EFI


def key_enrolled(look: Mapping[str, Any]) -> bool | None:
    """Return whether the firmware trusts dkms's signing key; None if unknown."""
    answers = look["keys"].values()
    if any("is already enrolled" in answer for answer in answers):
        return True
    return False if all("is not enrolled" in answer for answer in answers) else None


def _network(look: Mapping[str, Any], skipped: dict[str, str]) -> dict[str, Any]:
    if look["why"]:
        skipped["network"] = look["why"]
    interfaces: dict[str, dict[str, Any]] = {
        name: {
            "mtu": _number(sight["mtu"]),
            # Drivers report -1 for an unknown speed.
            "speed": speed if (speed := _number(sight["speed"])) and speed > 0 else None,
            "state": sight["state"],
            "addresses": [],
        }
        for name, sight in look["interfaces"].items()
    }
    for entry in _json(look["addresses"]):
        interface = interfaces.setdefault(
            entry.get("ifname", ""), {"mtu": entry.get("mtu"), "speed": None, "state": ""}
        )
        interface["addresses"] = [address["local"] for address in entry.get("addr_info", []) if "local" in address]
    default = [route for route in _json(look["routes"]) if route.get("dst") == "default"]
    span = [int(number) for number in look["port_range"].split() if number.isdigit()]
    return {
        "interfaces": interfaces,
        "default_route": {key: default[0][key] for key in ("gateway", "dev") if key in default[0]} if default else {},
        "ways": {
            way["dst"]: {
                "interface": way.get("dev", ""),
                "source": way.get("prefsrc", ""),
                "via": way.get("gateway", ""),
            }
            for line in look["ways"].splitlines()
            for way in _json(line)
            if "dst" in way
        },
        "port_range": span if len(span) == 2 else None,
        "reserved_ports": look["reserved_ports"],
    }


def _listeners(look: Mapping[str, Any], root: bool, skipped: dict[str, str]) -> list[dict[str, Any]]:
    if look["why"]:
        skipped["listeners"] = look["why"]
    elif not root:
        skipped["listeners.owners"] = "socket owners are visible only to root"
    return [asdict(listener) for listener in parse_ss(look["ss"])]


def _firewall(look: Mapping[str, Any], skipped: dict[str, str]) -> dict[str, Any]:
    """Return the active firewalls.

    ufw's state is read from ufw.conf, because its unit is active even if ufw is disabled.
    """
    active = look["active"]
    in_force = []
    if re.search(r"^ENABLED=yes", look["ufw_conf"], re.MULTILINE):
        in_force.append("ufw")
    if active.get("firewalld.service") == "active":
        in_force.append("firewalld")
    if active.get("nftables.service") == "active":
        in_force.append("nftables")
    chains = input_chains(look["nft"])
    if look["nft_why"]:
        skipped["firewall.rules"] = look["nft_why"]
    elif not in_force and any(chain["policy"] != "accept" for chain in chains):
        in_force.append("rules without a service")
    engines = [name for name in ("docker", "containerd") if active.get(f"{name}.service") == "active"]
    return {"in_force": in_force, "input_chains": chains, "legacy": look["legacy_tables"], "engines": engines}


def input_chains(nft: str) -> list[dict[str, str]]:
    """Return the chains at the input hook, from `nft list chains`."""
    chains = []
    table = chain = ""
    for line in nft.splitlines():
        words = line.split()
        if words[:1] == ["table"] and len(words) >= 3:
            table = f"{words[1]} {words[2]}"
        elif words[:1] == ["chain"] and len(words) >= 2:
            chain = words[1]
        elif "hook input" in line:
            policy = re.search(r"policy (\w+)", line)
            chains.append({"table": table, "chain": chain, "policy": policy[1] if policy else "accept"})
    return chains


def _clock(
    look: Mapping[str, Any], active: Mapping[str, str], system: Mapping[str, Any], skipped: dict[str, str]
) -> dict[str, Any]:
    synchronised = None
    if system["virtual"] == WSL:
        skipped["clock"] = "under WSL, Windows sets the clock"
    elif system["container"]:
        skipped["clock"] = f"a container ({system['virtual']}) uses the clock of its host"
    elif look["max_error"] is None:
        skipped["clock"] = look["why"]
    else:
        synchronised = look["max_error"] < UNSYNCHRONISED
    sources = [name for name in CLOCKS if active.get(f"{name}.service") == "active"]
    return {"sources": sources, "synchronised": synchronised, "zone": look["zone"]}


def _packages(look: Mapping[str, Any], skipped: dict[str, str]) -> dict[str, Any]:
    if look["stack_why"]:
        skipped["packages"] = look["stack_why"]
    stack = _installed(look["stack"])
    # A path owned by several packages is listed as "one, other: /path"; diversions have separate lines.
    owners = {
        path: package
        for package, path in re.findall(r"^(\S[^:]*?)(?::\w+)?: (/.+)$", look["owners"], re.MULTILINE)
        if not package.startswith("diversion ")
    }
    held = {int(inode) for inode in re.findall(r"[0-9a-f]+:[0-9a-f]+:(\d+) ", look["locks"])}
    return {
        "stack": stack,
        "driver": _driver(stack),
        "kernels": _flavours(_installed(look["kernels"])),
        "ours": [
            {"path": path, "by": _owner(path, owners, sight["says_so"]), "to": sight["to"]}
            for path, sight in look["ours"].items()
        ],
        "cloud_init": _cloud_init(look),
        "locked": [path for path, inode in look["lock_inodes"].items() if inode in held],
    }


def _installed(shown: str) -> dict[str, str]:
    """Return the versions of the packages that dpkg-query lists as installed, by package name."""
    lines = [line.split() for line in shown.splitlines()]
    return {words[0]: words[1] for words in lines if len(words) == 3 and words[2] == "installed"}


def _driver(stack: Mapping[str, str]) -> str:
    """Return the version of the driver installed from packages, such as 580.126.09; "" if there is none."""
    for name, version in stack.items():
        # One of these packages contains libcuda, which every CUDA program loads.
        if re.fullmatch(r"libnvidia-compute(-\d+(-server)?)?|libcuda1", name):
            return version.partition(":")[2].partition("-")[0] or version.partition("-")[0]
    return ""


def _flavours(kernels: Mapping[str, str]) -> list[str]:
    """Return the kernel flavours that have a meta package installed, such as generic-hwe-24.04."""
    names = (name.removeprefix("linux-image-") for name in kernels)
    return sorted(name for name in names if not re.match(r"\d|unsigned-|extra-|uc-", name))


def _owner(path: str, owners: Mapping[str, str], says_so: bool | None) -> str:
    """Return the owner of the path, if known."""
    if path in owners:
        return f"the package {owners[path]}"
    return {True: "Muster", False: "somebody else", None: "no package"}[says_so]


def _cloud_init(look: Mapping[str, Any]) -> str:
    """Return the state of cloud-init (absent, running, error or done) from its status and result files."""
    if not look["cloud_init_there"]:
        return "absent"
    result, status = (_json_object(look["cloud_init"][name]).get("v1", {}) for name in ("result", "status"))
    if result:
        return "error" if result.get("errors") else "done"
    return "running" if status else "not run since the start"


def _number(text: str) -> int | None:
    return int(text) if text.lstrip("-").isdigit() else None


def _json(text: str) -> list[dict[str, Any]]:
    """Return the objects in a JSON list. Empty objects, which older versions of `ip` print, are dropped."""
    try:
        value = json.loads(text or "[]")
    except ValueError:
        return []
    return [entry for entry in value if isinstance(entry, dict) and entry] if isinstance(value, list) else []


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
