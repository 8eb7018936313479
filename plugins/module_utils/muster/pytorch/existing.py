"""Environments that the user built on a node: which program built them, and whether launches can run in them. Pure
functions.

Each program leaves its own marker. conda and mamba write their command into conda-meta/history. pixi also creates
conda-meta/pixi. Tools for Python virtual environments write pyvenv.cfg.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..verdict.commands import shell

if TYPE_CHECKING:
    from collections.abc import Mapping

COMMAND = re.compile(r"^# cmd: (\S+)", re.MULTILINE)
MADE_IT = re.compile(r"^(uv|virtualenv) *= *(\S+)", re.MULTILINE)
VERSION = re.compile(r"[0-9][\w.+-]{0,30}", re.ASCII)
FAMILY = ("conda", "mamba", "micromamba")
UNKNOWN = "an unknown program"
MOST_SAID = 200  # characters of an import error
OF_ROOT = "Make root the owner: sudo chown -R root: {path}"


def made_by(marks: Mapping[str, Any]) -> str:
    """Return the program that built an environment.

    marks: texts of its marker files by name (see tools/environment_marks.py).
    """
    pixi = marks.get("conda-meta/pixi")
    if pixi is not None:
        return " ".join(filter(None, ("pixi", _version_of_pixi(pixi))))
    history = marks.get("conda-meta/history")
    if history is not None:
        # The first command created the environment. A conda installer has a name of its own.
        command = COMMAND.search(history)
        program = command[1].rpartition("/")[2] if command else ""
        return program if program in FAMILY else "conda"
    config = marks.get("pyvenv.cfg")
    if config is not None:
        said = MADE_IT.search(config)
        return " ".join((said[1], said[2][:30])) if said and VERSION.fullmatch(said[2]) else "venv"
    return UNKNOWN


def _version_of_pixi(text: str) -> str:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    version = said.get("pixi_version") if isinstance(said, dict) else None
    return version if isinstance(version, str) and VERSION.fullmatch(version) else ""


@dataclass(frozen=True)
class ExistingEnvironment:
    """refusal: why launches cannot run in the environment, and the fix; "" if they can. notes: information for its
    users.
    """

    made_by: str
    python: str = ""
    torch: str = ""
    refusal: str = ""
    notes: tuple[str, ...] = ()


def judge(path: str, look: Mapping[str, Any], user: str) -> ExistingEnvironment:
    """Evaluate an environment.

    look: the result of muster_node/pytorch/existing.py. user: the account that ran the environment's Python.
    """
    maker = made_by(look["marks"])
    if not look["there"]:
        return ExistingEnvironment(
            maker, refusal=f"{path}/bin/python does not exist. Create the environment, or correct prefix"
        )
    if look["everybody"]:
        what = f"every user can write to {look['everybody']} and thus change the code of launches"
        return ExistingEnvironment(
            maker, refusal=f"{what}. Remove this permission: {shell('sudo chmod -R o-w {path}', path=path)}"
        )
    said = look["said"]
    if "packages" not in said:
        fix = "The environment must be readable for every user and built for this node's platform"
        return ExistingEnvironment(maker, refusal=f"{user} cannot start its Python: {_short(said['error'])}. {fix}")
    torch, python = said.get("torch") or {}, str(said.get("python_full", ""))
    if torch and not said["imported"]:
        fix = f"Repair it with {maker.partition(' ')[0]}" if maker != UNKNOWN else "Repair the environment"
        return ExistingEnvironment(
            maker, python, refusal=f"its torch cannot be imported: {_short(said['error'])}. {fix}"
        )
    return ExistingEnvironment(maker, python, str(torch.get("version", "")), notes=tuple(_notes(path, look, torch)))


def _notes(path: str, look: Mapping[str, Any], torch: Mapping[str, Any]) -> list[str]:
    found = []
    if look["other"]:
        found.append(f"{look['other']}, so another user can change the code of launches. {OF_ROOT.format(path=path)}")
    if not torch:
        found.append("torch is not installed, so launches must set launch_command")
    elif not look["torchrun"]:
        found.append("bin/torchrun is missing, so launches must set launch_command")
    return found


def _short(text: Any) -> str:
    return " ".join(str(text).split())[:MOST_SAID].rstrip(".")
