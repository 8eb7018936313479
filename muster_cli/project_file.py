"""The file muster.yml of a project's folder: the cluster and options of its launches, as data."""

from __future__ import annotations

import difflib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .verbs import VerbOption, VerbSource

NAME = "muster.yml"
LARGEST = 65536  # characters of the file
LINES = {ord(one): " " for one in "\n\t"}  # these control characters are allowed in values
TEMPLATES = ("{{", "{%", "{#", "#jinja2:")  # the last one chooses other marks for the rest of a text


def defaults(
    folder: Path, registered: Mapping[str, Path], options: Sequence[VerbOption], project: VerbSource
) -> dict[str, Any]:
    """Return the values of parameters, as click's default_map takes them. Raises click.UsageError with all problems.

    The file may come with a project from elsewhere: it can name a registered cluster, but no inventory, and no file
    outside its folder. verbs.yml lists the options that it can set.
    """
    path = folder / NAME
    if not path.is_file():
        return {}
    try:
        given = load(path)
    except (OSError, TypeError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise click.UsageError(visible(f"{NAME} cannot be read: {' '.join(str(error).split())}")) from None
    if not isinstance(given, dict):
        raise click.UsageError(f"{NAME} is not a mapping of options.")
    allowed = (one for one in options if one.variable in project.short["of_projects"])
    known = {**{option_name(one): one.variable for one in allowed}, "cluster": "cluster"}
    problems = list(problems_of(given, known, project, folder))
    if (cluster := str(given.get("cluster") or "")) and cluster not in registered:
        problems.append(f"cluster {cluster} is not registered; clusters: {', '.join(registered) or 'none'}")
    if problems:
        raise click.UsageError("\n".join(f"{NAME}: {visible(one)}." for one in problems))
    return {known[name]: words(value) for name, value in given.items()}


def load(path: Path) -> Any:
    """Return the content as JSON values. Raises an error for content that is too large or has aliases, which multiply
    it."""
    with path.open(encoding="utf-8") as stream:
        text = stream.read(LARGEST + 1)
    if len(text) > LARGEST:
        raise ValueError(f"it has more than {LARGEST} characters")
    if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
        raise ValueError("it contains a YAML alias; write the value itself")
    return json.loads(json.dumps(yaml.safe_load(text) or {}, default=str))


def visible(text: str) -> str:
    """Return a text for the terminal, on one line, without control characters."""
    return "".join(one if one.isprintable() else f"<U+{ord(one):04X}>" for one in text)


def words(value: Any) -> Any:
    """Return a mapping as the NAME=VALUE words of the command line."""
    if not isinstance(value, dict):
        return value
    return [f"{name}={json.dumps(one) if isinstance(one, dict) else one}" for name, one in value.items()]


def option_name(option: VerbOption) -> str:
    """Return the name of an option in the file: its long flag without dashes."""
    return next(flag for flag in option.flags if flag.startswith("--"))[2:]


def problems_of(given: Mapping[Any, Any], known: Mapping[str, str], project: VerbSource, folder: Path) -> Iterator[str]:
    for name, value in given.items():
        files = project.short["declarations"].get(known.get(name))
        if name not in known:
            near = difflib.get_close_matches(name[:80], known, 1)
            yield f"{name} is not an option that the file can set{f' (did you mean {near[0]}?)' if near else ''}"
        elif has_template(value):
            yield f"{name} contains a template; write the value itself"
        elif any(visible(text.translate(LINES)) != text.translate(LINES) for text in texts_in(value)):
            yield f"{name} contains a control character"
        elif files and not (isinstance(value, dict) and all(isinstance(one, dict) for one in value.values())):
            yield f"{name} must be a mapping of names to mappings, such as {{mine: {{{files[0]}: FILE}}}}"
        else:
            paths = [one[key] for one in value.values() for key in files if key in one] if files else [value]
            for path in map(str, paths if files or known[name] in project.short["paths"] else ()):
                if path.startswith("~") or not inside(folder, path):
                    yield f"{name}: {path} is outside the folder of the file; give the path on the command line"


def inside(folder: Path, path: str) -> bool:
    """Return whether a path, with all links followed, is in the folder."""
    return Path(os.path.realpath(folder / path)).is_relative_to(os.path.realpath(folder))


def has_template(value: Any) -> bool:
    return any(mark in text for text in texts_in(value) for mark in TEMPLATES)


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
