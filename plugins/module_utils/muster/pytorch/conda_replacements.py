"""Replacements for the lines of an environment.yml that Muster refuses: packages of pip, Anaconda's default
channels, and variables. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .request import EnvironmentRequestError, canonical_name, parse_range
from .requirements import ANY_PYTHON

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MOST_SHOWN = 50  # packages of pip
# Packages whose name in conda-forge differs from the one in PyPI:
# https://github.com/conda/grayskull/blob/main/grayskull/strategy/config.yaml
CONDA_NAMES = {
    "docker": "docker-py",
    "flatbuffers": "python-flatbuffers",
    "graphviz": "python-graphviz",
    "kaleido": "python-kaleido",
    "msgpack": "msgpack-python",
    "opencv-python": "opencv",
    "redis": "redis-py",
    "soundfile": "pysoundfile",
    "tables": "pytables",
    "torch": "pytorch",
    "torch-geometric": "pytorch_geometric",
    "xxhash": "python-xxhash",
}


def replacements(channels: list[Any], specs: list[Any], variables: Any) -> Iterator[str]:
    """Yield a sentence for each refused part of an environment.yml, with the lines that replace it."""
    if "defaults" in channels:
        # Anaconda's terms require a license from larger organizations: https://www.anaconda.com/legal
        yield (
            "channel defaults means Anaconda's repository, which has terms of its own: replace it with conda-forge, or"
            " with https://repo.anaconda.com/pkgs/main if its terms allow your use"
        )
    for spec in specs:
        if isinstance(spec, dict):
            yield from of_pip(spec)
    if variables:
        yield "variables are not set in an environment: move them to launch_env"


def of_pip(section: Mapping[Any, Any]) -> Iterator[str]:
    lines = section.get("pip")
    if [*section] != ["pip"] or not isinstance(lines, list):
        yield f"dependency {str(section)[:100]!r} is not a valid conda spec"
        return
    found: list[str] = []
    others: list[str] = []
    for line in lines[:MOST_SHOWN]:
        spec = conda_spec(str(line))
        (found if spec else others).append(spec or repr(str(line)[:100]))
    if found:
        shown = ", ".join(f'"{spec}"' for spec in found)
        yield f"packages of pip are not installed into conda environments: replace the section pip with {shown}"
    if others:
        yield (
            f"pip: {', '.join(others)} cannot be a conda package: remove it, or declare a second environment with"
            " requirements"
        )
    if len(lines) > MOST_SHOWN:
        yield f"{len(lines) - MOST_SHOWN} more packages of pip are not shown"


def conda_spec(line: str) -> str:
    """Return the package of conda-forge that corresponds to a requirement of pip; "" for an option, URL or folder.

    Extras and builds such as +cu121 do not exist in conda-forge.
    """
    try:
        found = parse_range(line.partition(" #")[0], ANY_PYTHON)
    except EnvironmentRequestError:
        return ""
    if found is None:
        return ""
    versions = f" =={found.version.partition('+')[0]}" if found.version else found.more.partition(";")[0]
    return f"{CONDA_NAMES.get(canonical_name(found.name), found.name)}{versions}"
