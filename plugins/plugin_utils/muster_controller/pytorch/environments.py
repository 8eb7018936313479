"""Reads the files of named environments on the controller, and the values that a node needs for environments."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.common.yaml import yaml_load
from ansible.module_utils.parsing.convert_bool import boolean
from yaml import YAMLError

from muster.inventory.model import CLUSTER, Problem
from muster.pytorch import conda, environments
from muster.pytorch.conda import CondaError
from muster.pytorch.requirements import RequestedPackages, RequirementsError, asked, of_pyproject, parts_of
from muster_controller.packages.sources import node_environment, pip_mirror
from muster_controller.playbook.trusted import who_else_writes
from muster_node.tools import files

from .lock_file import LockFile, reviewed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MOST = 400_000  # bytes of a file
MOST_FILES = 20  # that include each other
# The controller's Python has tomllib; the nodes' Python 3.10 does not.
tomllib: Any = importlib.import_module("tomllib")


def read(entry: Mapping[str, Any], folder: str) -> RequestedPackages:
    """Read an environment's source file. folder: base of relative paths. Raises RequirementsError with file name."""
    option, path = source_of(entry, folder)
    torch, variant = entry.get("torch", ""), entry.get("variant", "")
    try:
        lines = _pyproject(path, entry.get("extras", [])) if option == "pyproject" else _lines(path, [])
        return asked(lines, torch, variant)
    except RequirementsError as problem:
        text = str(problem)
        raise RequirementsError(text if text.startswith("/") else f"{path}: {text}") from None


def source_of(entry: Mapping[str, Any], folder: str) -> tuple[str, Path]:
    """Return the option that names an environment's source file, and the path of the file."""
    option = next(option for option in environments.SOURCES if entry.get(option))
    return option, Path(folder, Path(entry[option]).expanduser())


def lock_of(arguments: Mapping[str, Any], name: str, folder: str) -> str:
    """Return the path of a named environment's lock, or "" if there is no default lock.

    It is next to the default lock. The lock of a user's own environment is next to its source file, in the project.
    """
    beside = arguments.get("lock")
    if beside and arguments.get("users_root"):
        _, beside = source_of(arguments["environments"][name], folder)
    return str(Path(beside).parent / f"{name}.lock.txt") if beside else ""


def read_conda(entry: Mapping[str, Any], folder: str) -> conda.CondaSpecs:
    """Read an environment.yml. Raises CondaError."""
    _, path = source_of(entry, folder)
    try:
        return conda.asked_of(yaml_load(_text(path)), str(entry.get("cuda", "")))
    except (RequirementsError, CondaError) as problem:
        raise CondaError(f"{path}: {problem}") from None
    except YAMLError as problem:
        raise CondaError(f"{path}: invalid YAML ({' '.join(str(problem).split())[:200]})") from None


def _pyproject(path: Path, extras: list[str]) -> list[str]:
    try:
        return of_pyproject(tomllib.loads(_text(path)), extras)
    except tomllib.TOMLDecodeError as problem:
        raise RequirementsError(f"invalid TOML ({problem})") from None


def _lines(path: Path, including: list[Path]) -> list[str]:
    if path in including or len(including) > MOST_FILES:
        raise RequirementsError(f"{path} includes itself")
    try:
        lines, included = parts_of(_text(path))
    except RequirementsError as problem:
        raise RequirementsError(f"{path}: {problem}") from None
    for name in included:
        lines += _lines(Path(os.path.normpath(path.parent / name)), [*including, path])
    return lines


def _text(path: Path) -> str:
    if found := who_else_writes(path):
        raise RequirementsError(": ".join(found))
    try:
        return files.read(os.path.realpath(path), most=MOST).decode("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "not UTF-8 text"
        raise RequirementsError(f"cannot be read ({why})") from None


def problems(values: Mapping[str, Any], folder: str) -> Iterator[Problem]:
    """Yield the errors in the options that declare environments, and in their files. values: variables of a node."""
    others: Any = {}
    for option in (environments.OPTION, environments.OWN):
        declared = values.get(option, {})
        wrong = environments.problems(declared, option, others)
        yield from (Problem(CLUSTER, what, fix, option) for what, fix in wrong)
        for name in environments.built(declared) if not wrong else ():
            try:
                (read_conda if declared[name].get("conda") else read)(declared[name], folder)
            except (RequirementsError, CondaError) as problem:
                what = f"{option}: {name!r}: {problem}"
                yield Problem(CLUSTER, what, f"Correct the file, or remove {name}", option)
        others = declared if isinstance(declared, dict) else {}


def environment_places(task_vars: Mapping[str, Any], templar: Any, loader: Any, node: str) -> dict[str, Any]:
    here = (task_vars, templar, loader, node)
    return {"mirror": pip_mirror(*here), "environment": node_environment(*here)}


def sections(arguments: Mapping[str, Any], lock: LockFile | None) -> dict[str, Any]:
    """Return the sections of the lock for the inspection, or {} if there is no lock or the mode is verify."""
    if lock is None or arguments.get("mode") == "verify":
        return {}
    shipped = reviewed() if may_be_reviewed(arguments) else ()
    locked, known = ([section.as_dict() for section in each] for each in (lock.read(), shipped))
    return {"locked": locked, "reviewed": known}


def may_be_reviewed(arguments: Mapping[str, Any]) -> bool:
    """Return whether reviewed sections apply, because only the package index and full mirrors have all of their
    wheels."""
    asked, index = arguments.get("reviewed_lock"), arguments.get("index_url", "auto")
    return boolean(asked or False) and index in ("", "auto") and not arguments.get("offline_dir")
