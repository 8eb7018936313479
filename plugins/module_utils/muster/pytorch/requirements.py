"""What a requirements file or a pyproject asks for, as lines that pip takes by themselves. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .lock import MOST_ASKED
from .request import EnvironmentRequestError, canonical_name, parse_range

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ANY_PYTHON = "3.12"  # whether a line can be read does not depend on it
_INCLUDED = re.compile(r"(?:-r|--requirement)[ =]?\s*(\S+)")
_FIXES = (
    (
        re.compile(r".*--hash\b"),
        "has a hash, and Muster writes a lock of its own",
        "Name the file that it was made from, or leave the hashes out",
    ),
    (
        re.compile(r"(-i|-f|--(extra-)?index-url|--find-links|--no-index|--trusted-host)\b"),
        "says where packages come from",
        "Say it in pytorch_index_url, pytorch_extra_index_urls or pytorch_find_links",
    ),
    (
        re.compile(r"-e\b|--editable|.*(://|\s@\s)|[./]"),
        "is a folder or an address, and only what an index or a folder of wheels has is installed",
        "Put a wheel into a folder of pytorch_find_links, or send the code with launch_project",
    ),
    (re.compile(r"-"), "is an option of pip that Muster does not know", "Take it out"),
)


class RequirementsError(ValueError):
    """The file cannot be used; the text says why, without the file's name and the full stop."""


@dataclass(frozen=True)
class RequestedPackages:
    """What an environment is asked to have. torch_version, variant: "" where nothing says them."""

    torch_version: str
    variant: str
    packages: tuple[str, ...]


def parts_of(text: str) -> tuple[list[str], list[str]]:
    """(requirements, files that it includes) of a requirements file. Raises RequirementsError."""
    required, included = [], []
    for number, line in _lines(text):
        found = _INCLUDED.fullmatch(line)
        if found:
            included.append(found[1])
        else:
            required.append(_checked(line, f"line {number}"))
    return required, included


def _lines(text: str) -> Iterable[tuple[int, str]]:
    """Each line with its number, without comments; one that ends with a backslash goes on."""
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
    """The dependencies of a pyproject.toml, as it was read, with those of these extras. Raises RequirementsError."""
    table = project.get("project")
    if not isinstance(table, dict):
        raise RequirementsError("it has no table [project], and only there are dependencies looked for")
    if "dependencies" in table.get("dynamic", ()):
        raise RequirementsError("its dependencies are dynamic, and code of a project is not run to find them out")
    optional = table.get("optional-dependencies", {})
    by_name = {canonical_name(name): lines for name, lines in optional.items()} if isinstance(optional, dict) else {}
    found = list(table.get("dependencies", []))
    for extra in extras:
        if canonical_name(extra) not in by_name:
            raise RequirementsError(f"it has no optional-dependencies called {extra}")
        found += by_name[canonical_name(extra)]
    return [_checked(str(line), "its dependencies") for line in found]


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
    """Which PyTorch the lines ask for, and everything else. torch_version, variant: of cluster_environments.

    Raises RequirementsError.
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
                raise RequirementsError(f"it has {line}, and {what} is {found[what]} besides")
    if len(packages) > MOST_ASKED:
        raise RequirementsError(f"it has more than {MOST_ASKED} requirements")
    return RequestedPackages(
        found.get("torch", torch_version), found.get("variant", variant), tuple(dict.fromkeys(packages))
    )
