"""Finds the launch arguments in logs: in commands of launchers, in variables before any command, in batch scripts, and
in the settings that torchrun logs."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from .arguments import OWN, SHARED, arguments, is_host

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LAUNCHER = re.compile(
    r"(?:^|[\s/])(?P<name>torchrun|torch\.distributed\.(?:run|launch)|accelerate(?:-launch| launch)"
    r"|deepspeed(?:\.launcher\.launch)?)\s+(?P<rest>.+)$"
)
BY_TORCHRUN = ("torchrun", "torch.distributed.run")
HINTS = ("torchrun", "launch", "distributed", "deepspeed", " : ", "world", "MEMBER", "#SBATCH", "node rank", "run_id")
BEFORE = re.compile(r"^\s*(?:\$|\++|export|declare -x|env)\s+|^\s+")
ASSIGNED = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>\"[^\"]*\"|'[^']*'|[^\s;&|]*)(?:[\s;&]+|$)")
VARIABLE = re.compile(r"\$\{?(?P<name>[A-Za-z_]\w*)\}?")
BATCH_NODES = re.compile(r"^#SBATCH\s+(?:--nodes[= ]|-N ?)(?P<count>\d{1,4})")
CONFIGURED = re.compile(
    r"^.*?\b(?P<name>max_nodes|nproc_per_node|rdzv_endpoint|rdzv_backend|run_id)\s+: (?P<value>\S+)$"
)
STATED = re.compile(
    r"(?:num nodes: |nnodes=)(?P<nnodes>\d{1,4}),(?: num_local_procs=\d+,)? node[ _]rank(?:: |=)(?P<node_rank>\d{1,4})$"
    r"|distributed tasks at: (?P<master_addr>[\w.-]+):(?P<master_port>\d{1,5})$"
    r"|has no run_id, generated a random run_id: (?P<rdzv_id>\d+)$"
)
WORLD = re.compile(r"\bworld_size[=:] ?(?P<size>\d{1,6})\b|MEMBER: \d+/(?P<members>\d{1,6})")
# Variables that launch scripts and launchers read. RANK is left out: it is the rank of a process for torch, and of a
# node for some launchers.
OF_SCRIPTS = {name.upper(): name for name in (*OWN, "nnodes", "master_addr", "master_port", "world_size")}
# torchrun reads these, and prints those in lower case.
OF_TORCHRUN = {f"PET_{name.upper()}": name for name in (*OWN, *SHARED) if name != "world_size"}
OF_TORCHRUN.update(max_nodes="nnodes", run_id="rdzv_id", group_rank="node_rank", group_world_size="nnodes")
MEANT = {**OF_SCRIPTS, **OF_TORCHRUN}
DEFAULTS = {"master_port": "29500", "node_rank": "0"}  # of torchrun with the static rendezvous


def arguments_in(lines: Iterable[str]) -> tuple[dict[str, str], bool]:
    """Return the launch arguments of one node, and whether a launcher was called or logged its settings."""
    variables: dict[str, str] = {}
    found: dict[str, str] = {}
    launched = is_torchrun = False
    for line in joined(lines):
        variables.update(assignments(line) if "=" in line else {})
        if not any(hint in line for hint in HINTS):
            continue
        command, configured, world = LAUNCHER.search(line), CONFIGURED.match(line), WORLD.search(line)
        if command and (options := arguments(words_of(command["rest"], variables))):
            launched = True
            is_torchrun = command["name"] in BY_TORCHRUN
            static = is_torchrun and "nnodes" in options and not options.keys() & {"rdzv_backend", "rdzv_endpoint"}
            found.update({**DEFAULTS, **options} if static else options)
        elif stated := STATED.search(line):
            found.update({name: value for name, value in stated.groupdict().items() if value})
        elif configured:
            launched = is_torchrun = True
            found.setdefault(MEANT.get(configured["name"], configured["name"]), configured["value"])
        elif world:
            found.setdefault("world_size", world["size"] or world["members"])
        elif match := BATCH_NODES.match(line):
            found.setdefault("nnodes", match["count"])
    read = {name: value for name, value in variables.items() if name in MEANT}
    known = {MEANT[name]: value for name, value in read.items() if not is_torchrun or name not in OF_SCRIPTS}
    known.update(found)
    return {name: value for name, value in known.items() if value and not set(value) & set("$`")}, launched


def joined(lines: Iterable[str]) -> Iterable[str]:
    """Yield the lines, with a command that continues on the next lines as one."""
    begun = ""
    for line in lines:
        if line.endswith("\\"):
            begun += f"{line[:-1]} "
        else:
            yield begun + line
            begun = ""
    if begun:
        yield begun


def assignments(line: str) -> dict[str, str]:
    """Return the variables at the beginning of a line."""
    rest = BEFORE.sub("", BEFORE.sub("", line, count=1), count=1)
    found = {}
    while match := ASSIGNED.match(rest):
        found[match["name"]] = match["value"].strip("\"'")
        rest = rest[match.end() :]
    return found


def words_of(command: str, variables: Mapping[str, str]) -> list[str]:
    filled = VARIABLE.sub(lambda match: variables.get(match["name"], match[0]), command)
    try:
        return shlex.split(filled)
    except ValueError:  # an unclosed quotation mark in a truncated log
        return filled.split()


def number(text: str) -> int:
    last = text.rpartition(":")[2]  # --nnodes=1:3
    return int(last) if last.isdecimal() and len(last) < 7 else 0  # no port or count is longer


def endpoint(told: Iterable[Mapping[str, str]]) -> tuple[str, int]:
    """Return the address and the port of the rendezvous according to the first node that names them. An invalid host
    name is left out."""
    port = ""
    for one in told:
        host, colon, at = one.get("rdzv_endpoint", "").rpartition(":")
        host, at = (host.strip("[]"), at) if colon else (at, "")
        if not is_host(host):
            host, at = one.get("master_addr", ""), one.get("master_port", at)
        if is_host(host):
            return host, number(at)
        port = port or at
    return "", number(port)
