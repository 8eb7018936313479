"""Find the commands shown in the docs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.md")])
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
OWN = re.compile(r"(?:^ *(?:\$ )?|: )((?:PYTHONPATH=\S+ )?(?:\.venv(?:-dev)?/bin/|script/|muster )\S+.*)")
# Placeholders of the docs and their values in the tests.
PLACEHOLDERS = {"<verb>": "up", "<cluster>": "lab"}


class Shown(NamedTuple):
    """A command and the page that shows the command."""

    where: str
    command: str


def lines() -> Iterator[tuple[str, str, str]]:
    """Yield the page, language and text of each line in a code block. Continuation lines are joined."""
    for path in PAGES:
        for language, block in FENCE.findall(path.read_text()):
            for line in block.replace("\\\n", " ").splitlines():
                yield str(path.relative_to(ROOT)), language, line


def in_pages() -> Iterator[Shown]:
    """Yield Muster's commands in code blocks and inline code."""
    for page, _, line in lines():
        if found := OWN.search(line):
            yield Shown(page, found[1])
    for path in PAGES:
        for inline in re.findall(r"`([^`]+)`", FENCE.sub("", path.read_text())):
            if re.match(r"(ansible(-playbook)? |muster |script/|\.venv(-dev)?/bin/\w)", inline):
                yield Shown(str(path.relative_to(ROOT)), " ".join(inline.split()))


def of_others() -> Iterator[Shown]:
    """Yield commands of other programs: lines after a prompt, and all lines of shell scripts."""
    for page, language, line in lines():
        found = re.match(r" *\$ +(.*)", line) or (re.match(r" *([^#\s].*)", line) if language == "sh" else None)
        if found and not OWN.search(line):
            yield Shown(page, found[1])


class Typed(NamedTuple):
    """A Muster command for readers, and the pages that show the command."""

    command: str
    pages: tuple[str, ...]


def called(command: str) -> str:
    """Return the command's name in tests/shown_commands.yml: the command without the program and the inventory."""
    for placeholder, value in PLACEHOLDERS.items():
        command = command.replace(placeholder, value)
    words = " ".join(shlex.split(command, comments=True)).rstrip(".")  # end of a sentence
    return words.removeprefix(".venv/bin/ansible-playbook ").replace(" -i inventory/lab", "", 1)


def of_readers() -> dict[str, Typed]:
    """Return the commands in README and the user docs without repetitions. The Chinese pages show the same commands."""
    found: dict[str, Typed] = {}
    for page, command in in_pages():
        if page == "README.md" or re.fullmatch(r"docs/\w+\.md", page):
            name = called(command)
            before = found.get(name, Typed(command.rstrip("."), ()))
            found[name] = before._replace(pages=tuple(sorted({*before.pages, page})))
    return found


def table() -> dict[str, dict[str, Any]]:
    """Return the entries of tests/shown_commands.yml: commands to run in order, and the reasons why other commands are
    not run."""
    read: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_suffix(".yml").read_text())
    return read
