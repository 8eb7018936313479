"""Check variables that are set outside launches: in files that NCCL reads, and for systemd units and logins."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..gpu_stack.nccl_conf import IFNAME, is_debugging
from ..gpu_stack.nccl_ib import GID_INDEX, HCA, PKEY
from ..verdict.check import Check, skip_all
from ..verdict.commands import shell
from ..verdict.finding import evidence
from ..verdict.masking import masked_env
from ..verdict.words import few

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from ..verdict.check import Said

# Variables that select a network interface.
IFNAMES = (IFNAME, "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
# Variables that may differ between nodes: names of local interfaces and adapters, and indexes into local tables.
OF_THE_NODE = (*IFNAMES, HCA, GID_INDEX, PKEY, "UCX_NET_DEVICES", "OMP_NUM_THREADS")
# Variables of torch and of libraries that change how ranks work together.
WORTH = re.compile(r"^(NCCL_|GLOO_|TP_|TORCH|CUDA_|UCX_|OMP_|MKL_|KMP_|LD_|PET_)")
UNITS = "the environment of systemd units"
SHOW_UNITS = "systemctl show --property=Environment"
# Variables that torchrun or another launcher sets for each rank, and one that hides GPUs from all ranks.
OF_RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES")
# Launches are not in this list: they only have the environment of their plan.
HEIRS = {"/etc/environment": "programs started manually", UNITS: "all systemd units except launches"}

DEBUGGING = Check(
    "env.debugging",
    seen="recording",
    reads="/etc/nccl.conf and the training user's .nccl.conf, which NCCL reads in every process; "
    "/etc/environment and the environment of systemd units, which launches do not inherit",
    fires="warn: a variable is set that NCCL documents for debugging only (NCCL_P2P_DISABLE, NCCL_ALGO, "
    "NCCL_DEBUG=INFO and others)",
    fix="Remove the variable. To set the variable for a single launch, use launch_env",
)
LAUNCHER = Check(
    "env.launcher",
    seen="sandbox",
    reads="/etc/environment and the environment of systemd units",
    fires="warn: a PET_* variable is set. torchrun reads it as an option, so a manually started torchrun is affected",
    fix="Remove the variables",
)
FOR_LOGINS = Check(
    "env.login",
    seen="recording",
    reads="/etc/environment, which applies to every login but not to Muster launches",
    fires="warn: a variable for GPUs or ranks is set (CUDA_VISIBLE_DEVICES, RANK, MASTER_ADDR and others), so programs "
    "started manually or by a Slurm login run with a different environment from the one that Muster checked",
    fix="Remove the variable. To set the variable for a single launch, use launch_env",
)
INTERFACE = Check(
    "env.interface",
    seen="sandbox",
    reads="/etc/nccl.conf, the training user's .nccl.conf, /etc/environment, the environment of systemd units, and "
    "/sys/class/net",
    fires="warn: NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME or TP_SOCKET_IFNAME selects an interface that the node does "
    "not have, so NCCL or Gloo fails at its first connection",
    fix="Set the variable to the interface of the training network, or remove it",
)
CHECKS = (DEBUGGING, LAUNCHER, FOR_LOGINS, INTERFACE)
LOOKS = ("host", "unit")


def facts_of(looks: Mapping[str, Any], _: Mapping[str, Any]) -> dict[str, Any]:
    host, inside = looks["host"], looks["unit"]["inside"]
    login = _assignments(host["environment"])
    return {
        "unit": masked_env(_worth(inside["environment"])) if inside else {},
        "login": masked_env(_worth(login)),
        "interfaces": host.get("interfaces", []),
        "of_ranks": {name: login[name] for name in OF_RANKS if name in login},
        "nccl_conf": {
            place: masked_env(conf(text))
            for place, text in (
                ("~/.nccl.conf", inside["nccl_conf"] if inside else None),
                ("/etc/nccl.conf", host["nccl_conf"]),
            )
            if text is not None
        },
    }


def _worth(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in sorted(variables.items()) if WORTH.match(name)}


def _assignments(text: str) -> dict[str, str]:
    """Parse /etc/environment as PAM does."""
    found = {}
    for line in text.splitlines():
        name, sign, value = line.strip().removeprefix("export ").partition("=")
        if sign and not name.startswith("#"):
            found[name.strip()] = value.strip().strip("\"'")
    return found


def conf(text: str) -> dict[str, str]:
    """Parse nccl.conf like NCCL: if a variable is set on several lines, the first line counts (src/misc/param.cc)."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, sign, value = line.partition("=")
        if sign and not line.startswith("#"):
            found.setdefault(name, value)
    return found


def in_force(files: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the settings that NCCL uses. NCCL reads the user's file first, and later files do not override it."""
    found: dict[str, str] = {}
    for place in ("~/.nccl.conf", "/etc/nccl.conf"):
        for name, value in files.get(place, {}).items():
            found.setdefault(name, value)
    return found


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    node = request["node"]
    seen = facts["environment"]
    # Report what one place shows, even if another cannot be read.
    if not facts["unit"]["inside"]:
        yield from skip_all((DEBUGGING, LAUNCHER, INTERFACE), facts["unit"]["why"])
    if not seen["interfaces"]:
        yield INTERFACE.skip("the network interfaces cannot be listed")
    for path in facts["host"]["unread"]:
        if path == "/etc/environment":
            yield from skip_all(CHECKS, f"{path} cannot be read")
        elif path == "/etc/nccl.conf":
            yield from skip_all((DEBUGGING, INTERFACE), f"{path} cannot be read")
    places = {**seen["nccl_conf"], "/etc/environment": seen["login"], UNITS: seen["unit"]}
    yield from of_variables(places, seen["interfaces"], request)
    for place in HEIRS:
        names = [name for name in places[place] if name.startswith("PET_")]
        if names:
            yield LAUNCHER.warn(
                node,
                f"{place} sets {', '.join(names)}, which torchrun reads as options",
                "Remove the variables. Show them with",
                command=shell("grep -n PET_ {place}", place=place) if place.startswith("/") else SHOW_UNITS,
                observed=", ".join(f"{name}={places[place][name]}" for name in names),
                expected="not set",
            )
    if seen["of_ranks"]:
        said = ", ".join(f"{name}={value}" for name, value in seen["of_ranks"].items())
        yield FOR_LOGINS.warn(
            node,
            f"/etc/environment sets {said}, which affects logins and manually started programs, but not launches",
            "Remove the variables. To set them for a single launch, use launch_env. Show the lines with",
            command=shell("grep -nE {names} /etc/environment", names="|".join(seen["of_ranks"])),
            observed=said,
            expected="not set",
        )


def of_variables(
    places: Mapping[str, Mapping[str, str]], interfaces: Collection[str], request: Mapping[str, Any]
) -> Iterator[Said]:
    node, user = request["node"], request["user"]
    for place, variables in places.items():
        who = "every launch" if place.endswith(".conf") else HEIRS[place]
        for name, value in variables.items():
            file = place.replace("~", f"~{user}")
            show = _grep(name, place, user) if place.startswith(("/", "~")) else SHOW_UNITS
            said: dict[str, Any] = {"observed": f"{name}={value}", "evidence": evidence(file, f"{name}={value}")}
            if is_debugging(name, value):
                yield DEBUGGING.warn(
                    node,
                    f"{file} sets {name}={value}, which is for debugging only and affects {who}",
                    "Remove the variable. If a launch needs it, set it with launch_env. Show the variable with",
                    show,
                    expected="not set",
                    **said,
                )
            if name in IFNAMES and interfaces and not selects(name, value, interfaces):
                whom = HEIRS.get(place, "programs started manually")  # launches set the variables themselves
                yield INTERFACE.warn(
                    node,
                    f"{file} sets {name}={value}, but the node has no such interface; this affects {whom}",
                    f"{INTERFACE.fix}. Show the variable with",
                    show,
                    expected=f"one of {few(sorted(interfaces))}",
                    **said,
                )


def selects(name: str, value: str, interfaces: Collection[str]) -> bool:
    """Return whether a variable selects an existing interface. NCCL reads a list of prefixes, of exact names after "=",
    and of excluded interfaces after "^"; Gloo and TensorPipe read exact names."""
    parts = [part.partition(":")[0].strip() for part in value.lstrip("^=").split(",")]
    exact = name != IFNAME or value.lstrip("^").startswith("=")
    wanted = [part for part in parts if part]
    found = [one for one in interfaces if (one in wanted if exact else one.startswith(tuple(wanted)))]
    return bool(set(interfaces) - set(found)) if value.startswith("^") else not wanted or bool(found)


def shown(variables: Mapping[str, str]) -> str:
    """Return the variables as one string for comparison, without those that may differ between nodes."""
    return " ".join(f"{name}={value}" for name, value in sorted(variables.items()) if name not in OF_THE_NODE)


def _grep(name: str, place: str, user: str) -> str:
    """Return a grep command. place: a path; a path that begins with "~" is in the home directory of the user."""
    if place.startswith("~"):
        return shell("grep -n {name} ~{user}{path}", name=name, user=user, path=place[1:])
    return shell("grep -n {name} {path}", name=name, path=place)
