"""The file muster.yml of a project's folder: the cluster and options of its launches, as data."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING, Any

import click
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from .verbs import VerbOption

NAME = "muster.yml"
TEMPLATES = ("{{", "{%", "{#", "#jinja2:")  # the last one chooses other marks for the rest of a text


def defaults(folder: Path, registered: Mapping[str, Path], options: Sequence[VerbOption]) -> dict[str, Any]:
    """Return the values of parameters, as click's default_map takes them. Raises click.UsageError with all problems.

    The file may come with a project from elsewhere: it can name a registered cluster, but no inventory.
    """
    path = folder / NAME
    if not path.is_file():
        return {}
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise click.UsageError(f"{NAME} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(given, dict):
        raise click.UsageError(f"{NAME} is not a mapping of options.")
    known = {**{option_name(one): one.variable for one in options}, "cluster": "cluster"}
    problems = list(problems_of(given, known))
    if (cluster := given.get("cluster")) and cluster not in registered:
        problems.append(f"cluster {cluster} is not registered; clusters: {', '.join(registered) or 'none'}")
    if problems:
        raise click.UsageError("\n".join(f"{NAME}: {one}." for one in problems))
    return {known[name]: words(value) for name, value in given.items()}


def words(value: Any) -> Any:
    """Return a mapping as the NAME=VALUE words of the command line."""
    if not isinstance(value, dict):
        return value
    return [f"{name}={json.dumps(one) if isinstance(one, dict) else one}" for name, one in value.items()]


def option_name(option: VerbOption) -> str:
    """Return the name of an option in the file: its long flag without dashes."""
    return next(flag for flag in option.flags if flag.startswith("--"))[2:]


def problems_of(given: Mapping[Any, Any], known: Mapping[str, str]) -> Iterator[str]:
    for name, value in given.items():
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            yield f"{name} is not an option of muster run{f' (did you mean {near[0]}?)' if near else ''}"
        elif any(mark in text for text in texts_in(value) for mark in TEMPLATES):
            yield f"{name} contains a template; write the value itself"


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield str(key)
            yield from texts_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts_in(one)
    else:
        yield str(value)
