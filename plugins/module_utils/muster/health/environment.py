"""What sets variables behind a launch's back: files that NCCL reads, and what units and logins inherit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..gpu_stack.nccl_conf import IFNAME, is_debugging
from ..gpu_stack.nccl_ib import GID_INDEX, HCA, PKEY
from ..verdict.check import Check, skip_all
from ..verdict.commands import shell
from ..verdict.finding import evidence
from ..verdict.masking import masked_env

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said

# What may and must differ between nodes: the names of their own interfaces and adapters, and places in their tables.
OF_THE_NODE = (
    *(IFNAME, "GLOO_SOCKET_IFNAME", HCA, GID_INDEX, PKEY, "TP_SOCKET_IFNAME", "UCX_NET_DEVICES", "OMP_NUM_THREADS"),
)
# torch's own and others' that change what ranks do together.
WORTH = re.compile(r"^(NCCL_|GLOO_|TORCH|CUDA_|UCX_|OMP_|MKL_|KMP_|LD_|PET_)")
UNITS = "the environment of units"
# What torchrun and whoever starts ranks sets for each of them, and what hides GPUs from all.
OF_RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES")
# Not a launch: that one has the environment of its plan alone.
HEIRS = {"/etc/environment": "what is started by hand", UNITS: "every other unit"}

DEBUGGING = Check(
    "env.debugging",
    seen="recording",
    reads="/etc/nccl.conf and the training user's .nccl.conf, which NCCL reads in every process; "
    "/etc/environment and the environment of units, which a launch does not inherit",
    fires="warn: they set a variable that NCCL's documentation keeps for debugging (NCCL_P2P_DISABLE, NCCL_ALGO, "
    "NCCL_DEBUG=INFO and others)",
    fix="Take it out; give it to one launch in launch_env",
)
LAUNCHER = Check(
    "env.launcher",
    seen="sandbox",
    reads="/etc/environment and the environment of units",
    fires="warn: PET_*, which torchrun reads as its own options: what is started by hand gets another plan",
    fix="Take it out",
)
FOR_LOGINS = Check(
    "env.login",
    seen="recording",
    reads="/etc/environment, which every login reads and a launch of Muster does not",
    fires="warn: it sets which GPUs a program sees, or who it is among the ranks (CUDA_VISIBLE_DEVICES, RANK, "
    "MASTER_ADDR and others): what is started by hand, or by Slurm for a login, meets another node than was judged",
    fix="Take it out; give it to one launch in launch_env",
)
CHECKS = (DEBUGGING, LAUNCHER, FOR_LOGINS)
LOOKS = ("host", "unit")


def facts_of(looks: Mapping[str, Any], _: Mapping[str, Any]) -> dict[str, Any]:
    host, inside = looks["host"], looks["unit"]["inside"]
    login = _assignments(host["environment"])
    return {
        "unit": masked_env(_worth(inside["environment"])) if inside else {},
        "login": masked_env(_worth(login)),
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
    """/etc/environment, as PAM reads it."""
    found = {}
    for line in text.splitlines():
        name, sign, value = line.strip().removeprefix("export ").partition("=")
        if sign and not name.startswith("#"):
            found[name.strip()] = value.strip().strip("\"'")
    return found


def conf(text: str) -> dict[str, str]:
    """nccl.conf, as NCCL reads it: the first line for a variable counts (src/misc/param.cc)."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, sign, value = line.partition("=")
        if sign and not line.startswith("#"):
            found.setdefault(name, value)
    return found


def in_force(files: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """What NCCL goes by: the user's file is read first, and a variable that is set stays."""
    found: dict[str, str] = {}
    for place in ("~/.nccl.conf", "/etc/nccl.conf"):
        for name, value in files.get(place, {}).items():
            found.setdefault(name, value)
    return found


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    node = request["node"]
    seen = facts["environment"]
    # What is seen in one place is found all the same.
    if not facts["unit"]["inside"]:
        yield from skip_all((DEBUGGING, LAUNCHER), facts["unit"]["why"])
    for path in facts["host"]["unread"]:
        if path == "/etc/environment":
            yield from skip_all(CHECKS, f"{path} cannot be read")
        elif path == "/etc/nccl.conf":
            yield DEBUGGING.skip(f"{path} cannot be read")
    places = {**seen["nccl_conf"], "/etc/environment": seen["login"], UNITS: seen["unit"]}
    for place, variables in places.items():
        who = "every launch" if place.endswith(".conf") else HEIRS[place]
        for name, value in variables.items():
            if not is_debugging(name, value):
                continue
            file = place.replace("~", f"~{request['user']}")
            yield DEBUGGING.warn(
                node,
                f"{file} sets {name}={value}, which is for debugging alone, and {who} runs with it",
                "Take it out, and give it to the launch that needs it in launch_env",
                _grep(name, place, request["user"])
                if place.startswith(("/", "~"))
                else "systemctl show --property=Environment",
                observed=f"{name}={value}",
                expected="not set",
                evidence=evidence(file, f"{name}={value}"),
            )
    for place in HEIRS:
        names = [name for name in places[place] if name.startswith("PET_")]
        if names:
            yield LAUNCHER.warn(
                node,
                f"{place} sets {', '.join(names)}, which torchrun takes for its own options",
                command=shell("grep -n PET_ {place}", place=place)
                if place.startswith("/")
                else "systemctl show --property=Environment",
                observed=", ".join(f"{name}={places[place][name]}" for name in names),
                expected="not set",
            )
    if seen["of_ranks"]:
        said = ", ".join(f"{name}={value}" for name, value in seen["of_ranks"].items())
        yield FOR_LOGINS.warn(
            node,
            f"/etc/environment sets {said}: what is started by hand or for a login goes by it, a launch does not",
            command=shell("grep -nE {names} /etc/environment", names="|".join(seen["of_ranks"])),
            observed=said,
            expected="not set",
        )


def shown(variables: Mapping[str, str]) -> str:
    """Variables as one value to compare: those that are a node's own left out."""
    return " ".join(f"{name}={value}" for name, value in sorted(variables.items()) if name not in OF_THE_NODE)


def _grep(name: str, place: str, user: str) -> str:
    """place: a path, or one below the home of the user."""
    if place.startswith("~"):
        return shell("grep -n {name} ~{user}{path}", name=name, user=user, path=place[1:])
    return shell("grep -n {name} {path}", name=name, path=place)
