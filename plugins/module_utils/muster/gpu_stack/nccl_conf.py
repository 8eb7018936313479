"""/etc/nccl.conf: what a node's interfaces call for, and what may stay as it is. Pure.

NCCL reads the file in every process that loads it, whatever started that one (nccl, src/misc/param.cc): a variable that
is in the environment already stays, and of two lines for one variable the first counts. A launch sets
NCCL_SOCKET_IFNAME in its environment; so the file says the same of it, for what is started by hand, or nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import nccl_ib

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PATH = "/etc/nccl.conf"
BEGIN = "# BEGIN muster: what the interfaces of this node call for, or nccl_conf says"
END = "# END muster"
IFNAME = "NCCL_SOCKET_IFNAME"
UNASKED = nccl_ib.Options()
_BEGIN = re.compile(r"# *BEGIN muster\b")
_END = re.compile(r"# *END muster\b")
_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
# NCCL's documentation of its variables puts these under debugging: not for production, nor to be kept in scripts.
_DEBUGGING = re.compile(
    r"NCCL_(P2P_DISABLE|P2P_LEVEL|SHM_DISABLE|IB_DISABLE|NET_DISABLE_INTRA|ALGO|PROTO|BUFFSIZE|NTHREADS|NET_GDR_LEVEL"
    r"|(MIN|MAX)_(NCHANNELS|CTAS)|CHECKS_DISABLE|LAUNCH_MODE)|CUDA_LAUNCH_BLOCKING"
)
# These are for debugging only with some values.
_DEBUGGING_VALUES = {
    "NCCL_DEBUG": ("INFO", "TRACE"),
    "NCCL_CUMEM_ENABLE": ("0",),
    "NCCL_DMABUF_ENABLE": ("0",),
}


@dataclass(frozen=True)
class NcclInterface:
    """An interface. up: whether it runs and has an address, be it only that of the link, which is enough for NCCL."""

    name: str
    up: bool = True


@dataclass(frozen=True)
class NcclNodeFacts:
    """The node. training: the interface that a launch has NCCL use; empty where nobody knows it.

    halves: whether each of its cables is two adapters (nccl_ib.OF_HALVES).
    """

    interfaces: tuple[NcclInterface, ...] = ()
    training: str = ""
    ports: tuple[nccl_ib.RdmaPort, ...] = ()
    halves: bool = False


@dataclass(frozen=True)
class NcclConfLines:
    """Our lines, why each, and what was not decided."""

    lines: Mapping[str, str]
    reasons: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()


@dataclass(frozen=True)
class NcclConfRewrite:
    """The new text, empty for no file at all; what differs, and what of the foreign lines is worth knowing."""

    text: str
    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def request_problems(request: object) -> Iterator[tuple[str, str]]:
    """Say what is wrong with nccl_conf itself, for which no node has to be looked at, and what to write instead."""
    instead = 'Write auto, "off", or a mapping of variables to values'
    if request is False:
        yield "nccl_conf is False, as YAML reads off without quotes", 'Write "off"'
    elif not isinstance(request, dict):
        if request not in ("auto", "off"):
            yield f"nccl_conf is {request!r}", instead
    else:
        for name, value in request.items():
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                yield f"nccl_conf has {name!r}, which is no name of a variable", instead
            elif isinstance(value, (dict, list)) or value is None or "\n" in str(value):
                yield f"nccl_conf has no single value for {name}", instead
            elif is_debugging(name, str(value)):
                yield (
                    f"nccl_conf sets {name}={value}, which is for debugging alone, and slows or breaks every launch",
                    "Give it to one launch, in launch_env",
                )


def is_debugging(name: str, value: str) -> bool:
    return bool(_DEBUGGING.fullmatch(name)) or value.strip().upper() in _DEBUGGING_VALUES.get(name, ())


def wanted(
    request: str | Mapping[str, object], seen: NcclNodeFacts, options: nccl_ib.Options = UNASKED
) -> NcclConfLines:
    """Return what belongs into our block: nothing on a node where NCCL cannot choose wrongly."""
    if request == "off":
        return NcclConfLines({})
    of_fabric = nccl_ib.choose(options, seen.ports, automatic=isinstance(request, str), halves=seen.halves)
    if not isinstance(request, str):
        # What it gives goes before what the fabric says.
        lines = {**of_fabric.lines, **{name: str(value) for name, value in request.items()}}
        return NcclConfLines(lines, ("nccl_conf says so", *of_fabric.reasons), of_fabric.undecided)
    lines = {}
    reasons = []
    up = [each.name for each in seen.interfaces if each.up]
    taken = taken_unasked(up)
    if seen.training in up and taken != [seen.training]:
        # "=" asks for exactly this name: without it, NCCL takes every interface whose name begins so.
        lines[IFNAME] = f"={seen.training}"
        reasons.append(f"{seen.training} carries the training, and NCCL by itself takes {', '.join(taken)}")
    return NcclConfLines({**lines, **of_fabric.lines}, (*reasons, *of_fabric.reasons), of_fabric.undecided)


def taken_unasked(up: Sequence[str]) -> list[str]:
    """Return the interfaces that NCCL takes for its sockets where nothing names them (nccl, src/misc/socket.cc).

    Since some version it leaves out virbr as well; which one a program brings is not known here.
    """
    infiniband = [name for name in up if name.startswith("ib")]
    return infiniband or [name for name in up if not name.startswith(("docker", "lo"))]


def rewrite(text: str | None, want: NcclConfLines, training: str = "") -> NcclConfRewrite:
    """Return the file as it should be: foreign lines byte for byte, and our block below them, where it has lines.

    A variable that a foreign line sets is theirs: of two lines NCCL goes by the first. A file that is not there, or
    holds nothing but our block, is None before and empty after.
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
        differences.append(f"{PATH} lacks {', '.join(missing)}")
    if extra:
        differences.append(f"our block in {PATH} still has {', '.join(extra)}")
    if not differences and new != (text or ""):
        differences.append(f"our block in {PATH} is not as it was written")
    return NcclConfRewrite(new, tuple(differences), tuple(_notes(foreign, theirs, want, training)))


def _divide(text: str) -> tuple[list[str], list[str]]:
    """Part foreign lines from ours. Where a hand has removed the block's end, nobody knows whose they are: foreign."""
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
                f"{PATH} has a line that NCCL does not understand, the {_ordinal(number)} foreign one: "
                f"{line.strip()!r}. It takes NAME=value alone, without export and without spaces"
            )
    for name, value in theirs.items():
        if is_debugging(name, value):
            yield (
                f"{PATH} sets {name}={value}, which is for debugging alone: every launch on this node runs with it. "
                "It is not Muster's line, and stays; take it out"
            )
    launched = f"={training}" if training else ""
    if launched and theirs.get(IFNAME, launched) != launched:
        yield (
            f"{PATH} sets {IFNAME}={theirs[IFNAME]}, and launches say {launched} in their environment, which counts "
            "for them. What is started by hand goes another way"
        )
    for name, value in want.lines.items():
        if name != IFNAME and theirs.get(name, value) != value:
            yield f"{PATH} sets {name}={theirs[name]} and not {value}. It is not Muster's line, and stays"


def _ordinal(number: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(number, f"{number}th")


def contradiction(request: object, training: str) -> str:
    """Say where nccl_conf and the environment of a launch would differ; empty where they do not."""
    given = str(request.get(IFNAME, "")) if isinstance(request, dict) else ""
    if not given or not training or given == f"={training}":
        return ""
    return (
        f"nccl_conf sets {IFNAME}={given}, and every launch says ={training} in its environment, which counts. "
        f"Set cluster_interface to the interface that is meant, and leave {IFNAME} out"
    )
