"""Read a requirements file or a pyproject.toml into lines for pip. Pure functions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .lock import MOST_ASKED
from .request import EnvironmentRequestError, canonical_name, parse_range

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ANY_PYTHON = "3.12"  # the syntax of a line does not depend on it
_INCLUDED = re.compile(r"(?:-r|--requirement)[ =]?\s*(\S+)")
_FIXES = (
    (
        re.compile(r".*--hash\b"),
        "has a hash, but Muster writes its own lock",
        "Use the file from which this file was compiled, or remove the hashes",
    ),
    (
        re.compile(r"(-i|-f|--(extra-)?index-url|--find-links|--no-index|--trusted-host)\b"),
        "sets a package source",
        "Set the source with pytorch_index_url, pytorch_extra_index_urls or pytorch_find_links",
    ),
    (
        re.compile(r"-e\b|--editable|.*(://|\s@\s)|[./]"),
        "is a folder or a URL, but packages are installed only from an index or a folder of wheels",
        "Put a wheel into a folder of pytorch_find_links, or copy the code with launch_project",
    ),
    (re.compile(r"-"), "is a pip option that Muster does not support", "Remove the option"),
)


class RequirementsError(ValueError):
    """The file cannot be used. The message gives the reason, without the file name and the full stop."""


@dataclass(frozen=True)
class RequestedPackages:
    """The packages requested for an environment. torch_version, variant: "" if not set anywhere."""

    torch_version: str
    variant: str
    packages: tuple[str, ...]


def parts_of(text: str) -> tuple[list[str], list[str]]:
    """Return (requirements, included files) of a requirements file. Raises RequirementsError."""
    required, included = [], []
    for number, line in _lines(text):
        found = _INCLUDED.fullmatch(line)
        if found:
            included.append(found[1])
        else:
            required.append(_checked(line, f"line {number}"))
    return required, included


def _lines(text: str) -> Iterable[tuple[int, str]]:
    """Yield each line with its line number, without comments. A backslash at the end of a line continues the line."""
    begun, whole = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        begun = begun or number
        more = line.endswith("\\")
        whole += (line[:-1] if more else line) + " "
        if more:
            continue
        if words := re.sub(r"(^|\s)#.*", "", whole).strip():
            yield begun, words
        begun, whole = 0, ""
    if words := whole.strip():
        yield begun, words


def of_pyproject(project: Mapping[str, Any], extras: Sequence[str]) -> list[str]:
    """Return the dependencies in a parsed pyproject.toml, including the given extras. Raises RequirementsError."""
    table = project.get("project")
    if not isinstance(table, dict):
        raise RequirementsError("the table [project], which lists the dependencies, is missing")
    if "dependencies" in table.get("dynamic", ()):
        raise RequirementsError("the dependencies are dynamic, and Muster does not run project code to compute them")
    optional = table.get("optional-dependencies", {})
    by_name = {canonical_name(name): lines for name, lines in optional.items()} if isinstance(optional, dict) else {}
    found = list(table.get("dependencies", []))
    for extra in extras:
        if canonical_name(extra) not in by_name:
            raise RequirementsError(f"optional-dependencies has no {extra}")
        found += by_name[canonical_name(extra)]
    return [_checked(str(line), "dependencies") for line in found]


def _checked(line: str, where: str) -> str:
    try:
        parse_range(line, ANY_PYTHON)
    except EnvironmentRequestError as problem:
        for begins, what, fix in _FIXES:
            if begins.match(line):
                raise RequirementsError(f"{where}: '{line[:200]}' {what}. {fix}") from None
        raise RequirementsError(f"{where}: {problem}") from None
    return line


def asked(lines: Iterable[str], torch_version: str = "", variant: str = "") -> RequestedPackages:
    """Return the PyTorch version that the lines request, and the other packages.

    torch_version, variant: the values set in cluster_environments. Raises RequirementsError.
    """
    packages: list[str] = []
    found: dict[str, str] = {}
    for line in lines:
        requirement = parse_range(line, ANY_PYTHON)
        if requirement is None or requirement.name != "torch" or not requirement.version or ";" in requirement.more:
            packages.append(line)
            continue
        release, _, build = requirement.version.partition("+")
        for what, option, value in (("torch", torch_version, release), ("variant", variant, build)):
            if value and found.setdefault(what, option or value) != value:
                raise RequirementsError(f"{line} conflicts with {what} {found[what]}")
    if len(packages) > MOST_ASKED:
        raise RequirementsError(f"more than {MOST_ASKED} requirements")
    return RequestedPackages(
        found.get("torch", torch_version), found.get("variant", variant), tuple(dict.fromkeys(packages))
    )
