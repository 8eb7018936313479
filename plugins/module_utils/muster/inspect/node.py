"""What the facts of one node mean for the cluster: findings, each with the words that fix it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..verdict.check import Check
from ..verdict.finding import Skipped, evidence
from ..verdict.words import few, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ..verdict.finding import Finding

    Rule = Callable[["Node"], "Iterable[Finding]"]

# Found here, and before a launch by health.
COUNT_DIFFERS = Check(
    "gpu.count.differs",
    reads="/sys/bus/pci/devices, and before a launch what the driver lists",
    fires="there are fewer GPUs than cluster_gpus (fail), or more, which stay idle (warn)",
    fix="Correct cluster_gpus, or look for the missing one in dmesg",
)
DISK_SMALL = Check(
    "node.disk.small",
    reads="the file systems that Muster writes to",
    fires="they are read-only, have no inodes, or too little room for what comes (fail). Where only logs are to come, "
    "less than 64 MB fails and less than 500 MB warns",
    fix="Make room, or choose another place",
)
UNSYNCHRONISED = Check(
    "time.unsynchronised",
    reads="the state of the clock that the kernel keeps",
    fires="it is not synchronised (warn)",
    fix="Look at the sources of the time daemon",
)
UNREACHABLE = Check(
    "node.unreachable",
    reads="the connection of Ansible to the node",
    fires="the node could not be looked at: a fail where it takes part in a launch, else unknown",
    fix="Look why with the command that is named, or leave it out (cluster_quarantined, cluster_launch_nodes)",
)
NOTHING_AGAINST = Check(
    "inspect.node",
    reads="everything that inspect looks at",
    fires="never: it is the pass of a node against which nothing stands",
)
OS_UNSUPPORTED = Check(
    "node.os.unsupported",
    reads="/etc/os-release",
    fires="the system is none that Muster knows (fail)",
    fix="Install a supported one, or take the node out of the inventory",
)
SYSTEMD_MISSING = Check(
    "node.systemd.missing",
    reads="/proc/1/comm",
    fires="the first process is not systemd (fail)",
    fix="Boot the node with systemd",
)
PYTHON_OLD = Check(
    "node.python.old",
    reads="the Python that Ansible uses there",
    fires="it is older than 3.10 (fail)",
    fix="Set ansible_python_interpreter to a newer one",
)
INTERFACE_MISSING = Check(
    "net.interface.missing",
    reads="/sys/class/net",
    fires="the node has no interface of the name cluster_interface (fail)",
    fix="Correct it, or leave it empty",
)
ADDRESS_MISSING = Check(
    "net.address.missing",
    reads="ip -json addr",
    fires="no interface has cluster_address (fail)",
    fix="Set cluster_address to an address of the node",
)
INTERFACE_OTHER = Check(
    "net.interface.other",
    reads="ip -json addr",
    fires="cluster_address is on another interface than cluster_interface (fail)",
    fix="Correct one of the two",
)
INTERFACE_DOWN = Check(
    "net.interface.down",
    reads="/sys/class/net/*/operstate",
    fires="the training interface is down (warn)",
    fix="ip link set NAME up",
)
PEER_OTHER_INTERFACE = Check(
    "net.peer.other_interface",
    reads="ip route get, for every peer",
    fires="the kernel reaches a peer over another interface than the one with the training address (warn)",
    fix="Give the training network a route of its own, or use addresses of one network",
)
PEER_NO_ROUTE = Check(
    "net.peer.no_route",
    reads="ip route get, for every peer",
    fires="there is no route to a peer (warn)",
    fix="Give it one",
)
DRIVER_OTHER = Check(
    "gpu.driver.other",
    reads="/sys/bus/pci/devices/*/driver",
    fires="nouveau or vfio-pci holds a GPU (warn)",
    fix="The driver of NVIDIA takes over from nouveau at the next start",
)
UID_DIFFERS = Check(
    "user.uid.differs",
    reads="/etc/passwd",
    fires="the training user has another uid than node_baseline_user_uid (fail), or than on most nodes (warn)",
    fix="Correct the variable, or the account by hand",
)
GID_DIFFERS = Check(
    "user.gid.differs",
    reads="/etc/passwd",
    fires="the training user has another gid than node_baseline_user_gid (fail), or than on most nodes (warn)",
    fix="Correct the variable, or the account by hand",
)
PORTS_OVERLAP = Check(
    "net.ports.overlap",
    reads="/proc/sys/net/ipv4/ip_local_port_range",
    fires="cluster_master_port lies in it, so that an outgoing connection may take it (warn)",
    fix="Choose another port, or reserve it (net.ipv4.ip_local_reserved_ports)",
)
CLOUD_INIT_FAILED = Check(
    "node.cloud_init.failed",
    reads="the result file of cloud-init",
    fires="cloud-init had errors at the last start (warn)",
    fix="cloud-init status --long",
)

OLDEST_PYTHON = (3, 10)
GIGABYTE = 1_000_000_000


@dataclass(frozen=True)
class Node:
    """A node as the inventory wants it and as it was found.

    request: its variables, defaults applied. facts: None when it was not reached, and `why` says so. platforms: the
    supported versions of each distribution. peers: the names of the others' training addresses.
    """

    name: str
    request: Mapping[str, Any]
    facts: Mapping[str, Any] | None
    why: str = ""
    platforms: Mapping[str, list[str]] = field(default_factory=dict)
    peers: Mapping[str, str] = field(default_factory=dict)

    @property
    def seen(self) -> Mapping[str, Any]:
        if self.facts is None:
            raise ValueError(f"{self.name} was not looked at")
        return self.facts

    @property
    def address(self) -> str:
        return str(self.request["cluster_address"])

    @property
    def training_interface(self) -> str:
        """The interface that has the training address, or ""."""
        interfaces = self.seen["network"]["interfaces"]
        return next((name for name, seen in interfaces.items() if self.address in seen["addresses"]), "")


def judge(node: Node) -> list[Finding]:
    """Return every finding about the node alone; one `pass` when nothing is wrong with it."""
    if node.facts is None:
        return [UNREACHABLE.unknown(node.name, f"it could not be looked at: {node.why}", "Look why", _ping(node))]
    found = [finding for rule in RULES for finding in rule(node)]
    if not any(finding.status in ("fail", "warn") for finding in found):
        found.append(NOTHING_AGAINST.passed(node.name, "nothing stands against it"))
    return found


def _ping(node: Node) -> str:
    return f"ansible {node.name} -m ansible.builtin.ping -vvv"


def skips(node: Node) -> list[Skipped]:
    """Return what could not be looked at on the node, and why: not checks, but the facts that several of them read."""
    if node.facts is None:
        return [Skipped(id="inspect", node=node.name, why=node.why)]
    return [Skipped(id=f"inspect.{fact}", node=node.name, why=why) for fact, why in node.facts["skipped"].items()]


def system(node: Node) -> Iterator[Finding]:
    seen = node.seen["system"]
    if not seen["id"]:
        return
    if seen["version"] not in node.platforms.get(seen["id"], []):
        supported = ", ".join(f"{name.capitalize()} {' '.join(versions)}" for name, versions in node.platforms.items())
        yield OS_UNSUPPORTED.fail(
            node.name,
            f"it runs {seen['name'] or seen['id']}, which Muster does not know",
            f"Install one of {supported}, or take the node out of the inventory",
            observed=f"{seen['id']} {seen['version']}",
            expected=supported,
            evidence=evidence("/etc/os-release", f"ID={seen['id']} VERSION_ID={seen['version']}"),
        )
    if seen["init"] != "systemd":
        yield SYSTEMD_MISSING.fail(
            node.name,
            f"its first process is {seen['init'] or 'unknown'}, and a launch is a unit of systemd",
            "Boot the node with systemd",
            evidence=evidence("/proc/1/comm", seen["init"]),
        )


def python(node: Node) -> Iterator[Finding]:
    seen = node.seen["system"]
    if tuple(int(number) for number in seen["python"].split(".")[:2]) < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        yield PYTHON_OLD.fail(
            node.name,
            f"{seen['python_path']} is Python {seen['python']}, older than {oldest}",
            f"Set ansible_python_interpreter to one of {oldest} or newer",
            observed=seen["python"],
            expected=f"{oldest} or newer",
        )


def address(node: Node) -> Iterator[Finding]:
    seen = node.seen["network"]
    if "network" in node.seen["skipped"]:
        return
    has = {name: interface["addresses"] for name, interface in seen["interfaces"].items() if name != "lo"}
    shown = "; ".join(f"{name} has {', '.join(addresses)}" for name, addresses in has.items() if addresses)
    wanted = str(node.request["cluster_interface"])
    if wanted and wanted not in seen["interfaces"]:
        yield INTERFACE_MISSING.fail(
            node.name,
            f"it has no interface {wanted} (cluster_interface), only {', '.join(has) or 'none'}",
            "Correct it, or leave cluster_interface empty to take the one that has cluster_address",
            observed=", ".join(has),
            expected=wanted,
        )
    interface = node.training_interface
    if not interface:
        yield ADDRESS_MISSING.fail(
            node.name,
            f"none of its interfaces has the address {node.address} (cluster_address)",
            f"Set cluster_address to one that it has ({shown})" if shown else "Give it the address",
            observed=shown,
            expected=node.address,
            evidence=evidence("ip -json addr", shown),
        )
    elif wanted in seen["interfaces"] and interface != wanted:
        yield INTERFACE_OTHER.fail(
            node.name,
            f"{node.address} (cluster_address) is on {interface}, and cluster_interface is {wanted}",
            f"Set cluster_interface to {interface}, or cluster_address to an address of {wanted}",
            observed=interface,
            expected=wanted,
        )
    elif seen["interfaces"][interface]["state"] == "down":
        yield INTERFACE_DOWN.warn(
            node.name,
            f"{interface}, which has {node.address}, is down",
            "Bring it up with",
            f"ip link set {interface} up",
        )


def ways(node: Node) -> Iterator[Finding]:
    seen = node.seen["network"]
    mine = node.training_interface
    if not mine or not seen["ways"]:
        return
    others: dict[str, list[str]] = {}
    for peer, address_of_peer in node.peers.items():
        way = seen["ways"].get(address_of_peer)
        interface = way["interface"] if way else ""
        if interface not in (mine, "lo"):
            others.setdefault(interface, []).append(peer)
    for interface, peers in others.items():
        names = few(peers)
        if interface:
            yield PEER_OTHER_INTERFACE.warn(
                node.name,
                f"it reaches {names} over {interface}, and its training address is on {mine}",
                "Give the training network a route of its own, or set cluster_address to addresses of one network",
                f"ip route get {node.peers[peers[0]]}",
                observed=interface,
                expected=mine,
            )
        else:
            yield PEER_NO_ROUTE.warn(
                node.name,
                f"it has no route to {names}",
                "Look at",
                f"ip route get {node.peers[peers[0]]}",
            )


def gpus(node: Node) -> Iterator[Finding]:
    if "gpus" in node.seen["skipped"]:
        return
    devices = node.seen["gpus"]["devices"]
    wanted = int(node.request["cluster_gpus"])
    if len(devices) < wanted:
        yield COUNT_DIFFERS.fail(
            node.name,
            f"it has {plural(len(devices), 'GPU')} on the bus, and cluster_gpus is {wanted}",
            "Correct cluster_gpus; if one is missing, look for it with",
            "sudo dmesg | grep -iE 'nvrm|pcie'",
            observed=str(len(devices)),
            expected=str(wanted),
            evidence=evidence("/sys/bus/pci/devices", ", ".join(device["slot"] for device in devices)),
        )
    elif len(devices) > wanted:
        yield COUNT_DIFFERS.warn(
            node.name,
            f"{plural(len(devices) - wanted, 'GPU')} of its {len(devices)} would stay idle: cluster_gpus is {wanted}",
            f"Set cluster_gpus to {len(devices)} to train on all of them",
            observed=str(len(devices)),
            expected=str(wanted),
        )
    for driver, what in (("nouveau", "cannot compute"), ("vfio-pci", "gives them to virtual machines")):
        bound = [device["slot"] for device in devices if device["driver"] == driver]
        if bound and wanted:
            yield DRIVER_OTHER.warn(
                node.name,
                f"{plural(len(bound), 'GPU')} held by the driver {driver}, which {what}",
                "The driver of NVIDIA takes them over at the next start" if driver == "nouveau" else "Take them back",
                observed=driver,
                expected="nvidia",
                evidence=evidence("/sys/bus/pci/devices", ", ".join(bound)),
            )


def user(node: Node) -> Iterator[Finding]:
    seen = node.seen["users"]["training_user"]
    for check, key, variable in (
        (UID_DIFFERS, "uid", "node_baseline_user_uid"),
        (GID_DIFFERS, "gid", "node_baseline_user_gid"),
    ):
        wanted = str(node.request.get(variable) or "")
        if seen and wanted not in ("", "0", str(seen[key])):
            yield check.fail(
                node.name,
                f"{seen['name']} has the {key} {seen[key]}, and {variable} is {wanted}",
                "An account that exists is never altered: correct the variable, or the account by hand",
                observed=str(seen[key]),
                expected=wanted,
            )


def disk(node: Node) -> Iterator[Finding]:
    rooms = node.seen["disk"]
    # A first environment with CUDA takes 8 GB while it is made, one for the CPU alone 1.5 GB; nothing can be installed
    # or logged on less than half a gigabyte.
    first = (10 if node.request["cluster_gpus"] else 2) * GIGABYTE
    small: dict[tuple[str, str], list[str]] = {}
    for path, room in rooms.items():
        if "why" in room:
            continue
        new = path.startswith(str(node.request["pytorch_root"])) and not room["exists"]
        need = first if new else GIGABYTE // 2
        if room["read_only"]:
            small.setdefault((room["on"], "is mounted read-only"), []).append(path)
        elif room["free"] < need:
            what = f"has {room['free'] / GIGABYTE:.1f} GB free, and {need / GIGABYTE:g} GB are needed"
            small.setdefault((room["on"], what), []).append(path)
        elif room["inodes_free"] is not None and room["inodes_free"] < 1000:
            small.setdefault((room["on"], "has no inodes left"), []).append(path)
    for (on, what), paths in small.items():
        yield DISK_SMALL.fail(
            node.name,
            f"{on}, where {' and '.join(paths)} will be, {what}",
            "Make room there, or choose another place; what fills it is shown by",
            f"sudo du -xhd1 {on}",
            observed=what,
        )


def ports(node: Node) -> Iterator[Finding]:
    span = node.seen["network"]["port_range"]
    port = int(node.request["cluster_master_port"])
    if not span or not span[0] <= port <= span[1] or _reserved(node.seen["network"]["reserved_ports"], port):
        return
    if node.request.get("firewall_tight") and node.request.get("firewall_mode") == "manage":
        return  # the range is about to be pinned elsewhere
    yield PORTS_OVERLAP.warn(
        node.name,
        f"any outgoing connection may take the port {port} (cluster_master_port): its kernel gives them"
        f" {span[0]} to {span[1]}",
        "Choose a cluster_master_port outside that range, or keep the port free with",
        f"sudo sysctl -w net.ipv4.ip_local_reserved_ports={port}",
        observed=f"{span[0]}-{span[1]}",
        expected=f"without {port}",
        evidence=evidence("/proc/sys/net/ipv4/ip_local_port_range", f"{span[0]} {span[1]}"),
    )


def clock(node: Node) -> Iterator[Finding]:
    seen = node.seen["clock"]
    if seen["synchronised"] is False:
        sources = ", ".join(seen["sources"])
        yield UNSYNCHRONISED.warn(
            node.name,
            f"its clock is not synchronised ({f'{sources} runs' if sources else 'nothing sets it'})",
            "Look at its sources" if sources else "The step baseline sets one up",
            "chronyc -n sources" if "chrony" in sources else "timedatectl timesync-status" if sources else "",
        )


def starting(node: Node) -> Iterator[Finding]:
    if node.seen["packages"]["cloud_init"] == "error":
        yield CLOUD_INIT_FAILED.warn(
            node.name,
            "cloud-init had errors at the last start, so what it was to set up may be missing",
            "Look at them with",
            "cloud-init status --long",
        )


RULES: tuple[Rule, ...] = (system, python, address, ways, gpus, user, disk, ports, clock, starting)


def _reserved(text: str, port: int) -> bool:
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and int(first) <= port <= int(last or first):
            return True
    return False
