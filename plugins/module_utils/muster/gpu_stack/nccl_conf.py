"""Determine the lines of /etc/nccl.conf that the network interfaces of a node require. Pure functions.

Every process that loads NCCL reads the file (nccl, src/misc/param.cc). Environment variables take precedence over the
file. If a variable occurs twice in the file, the first line counts. A launch sets NCCL_SOCKET_IFNAME in its
environment. The file either has the same value, for processes that are started manually, or does not set the variable.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import nccl_ib

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PATH = "/etc/nccl.conf"
BEGIN = "# BEGIN muster: settings that this node's interfaces require or that nccl_conf requests"
END = "# END muster"
IFNAME = "NCCL_SOCKET_IFNAME"
UNASKED = nccl_ib.Options()
_BEGIN = re.compile(r"# *BEGIN muster\b")
_END = re.compile(r"# *END muster\b")
_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
# NCCL's documentation lists these variables under debugging: not for production, and not to be kept in scripts.
_DEBUGGING = re.compile(
    r"NCCL_(P2P_DISABLE|P2P_LEVEL|SHM_DISABLE|IB_DISABLE|NET_DISABLE_INTRA|ALGO|PROTO|BUFFSIZE|NTHREADS|NET_GDR_LEVEL"
    r"|(MIN|MAX)_(NCHANNELS|CTAS)|CHECKS_DISABLE|LAUNCH_MODE)|CUDA_LAUNCH_BLOCKING"
)
# For debugging only with these values
_DEBUGGING_VALUES = {
    "NCCL_DEBUG": ("INFO", "TRACE"),
    "NCCL_CUMEM_ENABLE": ("0",),
    "NCCL_DMABUF_ENABLE": ("0",),
}


@dataclass(frozen=True)
class NcclInterface:
    """A network interface. up: whether it is up and has an address; a link-local address is sufficient for NCCL."""

    name: str
    up: bool = True


@dataclass(frozen=True)
class NcclNodeFacts:
    """The network interfaces of a node. training: the interface that a launch sets for NCCL; "" if unknown.

    halves: whether each cable is connected to two adapters (see nccl_ib.OF_HALVES).
    """

    interfaces: tuple[NcclInterface, ...] = ()
    training: str = ""
    ports: tuple[nccl_ib.RdmaPort, ...] = ()
    halves: bool = False


@dataclass(frozen=True)
class NcclConfLines:
    """The lines of Muster's block and the reasons for them, and decisions that are left to the user."""

    lines: Mapping[str, str]
    reasons: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()


@dataclass(frozen=True)
class NcclConfRewrite:
    """The new content ("" removes the file), the differences, and notes about lines that Muster did not write."""

    text: str
    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def request_problems(request: object) -> Iterator[tuple[str, str]]:
    """Yield (problem, fix) for errors in nccl_conf that can be detected without facts about the nodes."""
    instead = 'Use auto, "off", or a mapping of variables to values'
    if request is False:
        yield "nccl_conf is False, because YAML reads off without quotes as False", 'Use "off" with quotes'
    elif not isinstance(request, dict):
        if request not in ("auto", "off"):
            yield f"nccl_conf is {request!r}", instead
    else:
        for name, value in request.items():
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                yield f"nccl_conf has {name!r}, which is not a variable name", instead
            elif isinstance(value, (dict, list)) or value is None or "\n" in str(value):
                yield f"the value of {name} in nccl_conf is not a single value", instead
            elif is_debugging(name, str(value)):
                yield (
                    f"nccl_conf sets {name}={value}, which is only for debugging and slows or breaks every launch",
                    "Set it in launch_env for a single launch",
                )


def is_debugging(name: str, value: str) -> bool:
    return bool(_DEBUGGING.fullmatch(name)) or value.strip().upper() in _DEBUGGING_VALUES.get(name, ())


def wanted(
    request: str | Mapping[str, object], seen: NcclNodeFacts, options: nccl_ib.Options = UNASKED
) -> NcclConfLines:
    """Return the lines of Muster's block. There are none if NCCL chooses the right interface by itself."""
    if request == "off":
        return NcclConfLines({})
    of_fabric = nccl_ib.choose(options, seen.ports, automatic=isinstance(request, str), halves=seen.halves)
    if not isinstance(request, str):
        # Values of the request take precedence over values from the fabric.
        lines = {**of_fabric.lines, **{name: str(value) for name, value in request.items()}}
        return NcclConfLines(lines, ("requested by nccl_conf", *of_fabric.reasons), of_fabric.undecided)
    lines = {}
    reasons = []
    up = [each.name for each in seen.interfaces if each.up]
    taken = taken_unasked(up)
    if seen.training in up and taken != [seen.training]:
        # "=" selects exactly this name. Without it, NCCL uses every interface whose name begins with the value.
        lines[IFNAME] = f"={seen.training}"
        reasons.append(f"{seen.training} is the training interface, but NCCL would use {', '.join(taken)} by default")
    return NcclConfLines({**lines, **of_fabric.lines}, (*reasons, *of_fabric.reasons), of_fabric.undecided)


def taken_unasked(up: Sequence[str]) -> list[str]:
    """Return the interfaces that NCCL uses for sockets by default (nccl, src/misc/socket.cc).

    Newer NCCL releases also exclude virbr interfaces. Which release a program uses is not known here.
    """
    infiniband = [name for name in up if name.startswith("ib")]
    return infiniband or [name for name in up if not name.startswith(("docker", "lo"))]


def rewrite(text: str | None, want: NcclConfLines, training: str = "") -> NcclConfRewrite:
    """Return the new file: the other lines unchanged, followed by Muster's block if it has lines.

    The block omits variables that other lines already set, because NCCL uses the first line. text: None if the
    file does not exist. The result is "" if no line remains.
    """
    foreign, block = _divide(text or "")
    theirs: dict[str, str] = {}
    for line in foreign:
        name, sign, value = line.rstrip("\n").partition("=")
        if sign and not line.startswith("#"):
            theirs.setdefault(name, value)
    ours = {name: value for name, value in want.lines.items() if name not in theirs}
    requested = [f"{name}={value}\n" for name, value in ours.items()]
    above = "".join(foreign)
    if above and requested and not above.endswith("\n"):
        above += "\n"
    new = above + ("".join([f"{BEGIN}\n", *requested, f"{END}\n"]) if requested else "")
    had = [line for line in block if not line.startswith("#")]
    differences = []
    missing = [line.strip() for line in requested if line not in had]
    extra = [line.strip() for line in had if line not in requested]
    if missing:
        differences.append(f"missing in {PATH}: {', '.join(missing)}")
    if extra:
        differences.append(f"obsolete lines in Muster's block in {PATH}: {', '.join(extra)}")
    if not differences and new != (text or ""):
        differences.append(f"Muster's block in {PATH} was changed")
    return NcclConfRewrite(new, tuple(differences), tuple(_notes(foreign, theirs, want, training)))


def _divide(text: str) -> tuple[list[str], list[str]]:
    """Separate the lines of Muster's block from all other lines.

    If the end marker is missing, no line counts as part of the block.
    """
    foreign: list[str] = []
    block: list[str] = []
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    inside = False
    for number, line in enumerate(lines):
        if _BEGIN.match(line):
            inside = any(_END.match(later) for later in lines[number:])
        elif _END.match(line):
            inside = False
        elif inside:
            block.append(line)
        else:
            foreign.append(line)
    return foreign, block


def _notes(foreign: list[str], theirs: Mapping[str, str], want: NcclConfLines, training: str) -> Iterator[str]:
    for number, line in enumerate(foreign, 1):
        name, sign, _ = line.partition("=")
        if line.startswith("#") or not line.strip():
            continue
        if not sign or not _NAME.fullmatch(name):
            yield (
                f"{PATH} has a line that NCCL cannot read (line {number} outside Muster's block): "
                f"{line.strip()!r}. Use NAME=value without export and without spaces"
            )
    for name, value in theirs.items():
        if is_debugging(name, value):
            yield (
                f"{PATH} sets {name}={value}, which is only for debugging but applies to every launch on this node. "
                "Muster changes only its own lines; remove this line manually"
            )
    launched = f"={training}" if training else ""
    if launched and theirs.get(IFNAME, launched) != launched:
        yield (
            f"{PATH} sets {IFNAME}={theirs[IFNAME]}, but launches set {launched} in their environment, which takes "
            "precedence. Programs that are started manually use the interface from the file"
        )
    for name, value in want.lines.items():
        if name != IFNAME and theirs.get(name, value) != value:
            yield f"{PATH} sets {name}={theirs[name]} instead of {value}. Muster changes only its own lines"


def contradiction(request: object, training: str) -> str:
    """Return a message if nccl_conf contradicts the environment of launches; otherwise ""."""
    given = str(request.get(IFNAME, "")) if isinstance(request, dict) else ""
    if not given or not training or given == f"={training}":
        return ""
    return (
        f"nccl_conf sets {IFNAME}={given}, but every launch sets {IFNAME}=={training} in its environment, "
        f"which takes precedence. Set cluster_interface to the intended interface, and remove {IFNAME} from nccl_conf"
    )
