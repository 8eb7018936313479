"""Environments that somebody else has made on a node: which program made one, and whether launches may run in it. Pure.

Each program leaves a mark of its own. conda and mamba write their command into conda-meta/history, pixi has
conda-meta/pixi beside that, and whatever makes environments of Python's own kind writes pyvenv.cfg.
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
UNKNOWN = "a program that left no mark"
MOST_SAID = 200  # characters of what an import says
OF_ROOT = "Have it belong to root: sudo chown -R root: {path}"


def made_by(marks: Mapping[str, Any]) -> str:
    """The program that has made it. marks: the texts of its files, by their names; see tools/environment_marks.py."""
    pixi = marks.get("conda-meta/pixi")
    if pixi is not None:
        return " ".join(filter(None, ("pixi", _version_of_pixi(pixi))))
    history = marks.get("conda-meta/history")
    if history is not None:
        # The first command is the one that made it; an installer of conda's has a name of its own.
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
    """refusal: why nothing can be launched in it, and the fix; "" where it can. notes: what its users should know."""

    made_by: str
    python: str = ""
    torch: str = ""
    refusal: str = ""
    notes: tuple[str, ...] = ()


def judge(path: str, look: Mapping[str, Any], user: str) -> ExistingEnvironment:
    """look: what muster_node/pytorch/existing.py has seen of it. user: as whom its Python was started."""
    maker = made_by(look["marks"])
    if not look["there"]:
        return ExistingEnvironment(
            maker, refusal=f"there is no Python at {path}/bin/python. Make it there, or correct its prefix"
        )
    if look["everybody"]:
        what = f"everybody may write to {look['everybody']}, and so choose what launches run"
        return ExistingEnvironment(
            maker, refusal=f"{what}. Take that right away: {shell('sudo chmod -R o-w {path}', path=path)}"
        )
    said = look["said"]
    if "packages" not in said:
        fix = "It must lie where every user may read, and fit this node"
        return ExistingEnvironment(
            maker, refusal=f"its Python does not start as {user}: {_short(said['error'])}. {fix}"
        )
    torch, python = said.get("torch") or {}, str(said.get("python_full", ""))
    if torch and not said["imported"]:
        fix = f"Put it right with {maker.partition(' ')[0]}" if maker != UNKNOWN else "Put it right"
        return ExistingEnvironment(
            maker, python, refusal=f"its torch cannot be imported: {_short(said['error'])}. {fix}"
        )
    return ExistingEnvironment(maker, python, str(torch.get("version", "")), notes=tuple(_notes(path, look, torch)))


def _notes(path: str, look: Mapping[str, Any], torch: Mapping[str, Any]) -> list[str]:
    found = []
    if look["other"]:
        found.append(
            f"{look['other']}, so that somebody else may change what launches run. {OF_ROOT.format(path=path)}"
        )
    if not torch:
        found.append("it has no torch, so a launch in it has to bring a command of its own (launch_command)")
    elif not look["torchrun"]:
        found.append("it has no bin/torchrun, so a launch in it has to bring a command of its own (launch_command)")
    return found


def _short(text: Any) -> str:
    return " ".join(str(text).split())[:MOST_SAID].rstrip(".")
