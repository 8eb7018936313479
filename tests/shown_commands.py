"""The commands that the pages show, as their reader finds them."""

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
OWN = re.compile(r"(?:^ *(?:\$ )?|: )((?:PYTHONPATH=\S+ )?(?:\.venv(?:-dev)?/bin/|script/)\S+.*)")
# What the docs put for what is the reader's own.
PLACEHOLDERS = {"<name>": "lab", "<cluster>": "lab"}


class Shown(NamedTuple):
    """A command, and where it is shown."""

    where: str
    command: str


def lines() -> Iterator[tuple[str, str, str]]:
    """Each line of each block: its page, its language and itself; one that goes on behind a backslash is one."""
    for path in PAGES:
        for language, block in FENCE.findall(path.read_text()):
            for line in block.replace("\\\n", " ").splitlines():
                yield str(path.relative_to(ROOT)), language, line


def in_pages() -> Iterator[Shown]:
    """Muster's own: in blocks, and in backticks."""
    for page, _, line in lines():
        if found := OWN.search(line):
            yield Shown(page, found[1])
    for path in PAGES:
        for inline in re.findall(r"`([^`]+)`", FENCE.sub("", path.read_text())):
            if re.match(r"(ansible(-playbook)? |script/|\.venv(-dev)?/bin/\w)", inline):
                yield Shown(str(path.relative_to(ROOT)), " ".join(inline.split()))


def of_others() -> Iterator[Shown]:
    """Of other programs: lines behind a prompt, and every line of a shell script."""
    for page, language, line in lines():
        found = re.match(r" *\$ +(.*)", line) or (re.match(r" *([^#\s].*)", line) if language == "sh" else None)
        if found and not OWN.search(line):
            yield Shown(page, found[1])


class Typed(NamedTuple):
    """A command of Muster's own that a reader types, and the pages that show it."""

    command: str
    pages: tuple[str, ...]


def called(command: str) -> str:
    """What tests/shown_commands.yml calls it: without what most of them have, the program and the inventory."""
    for placeholder, value in PLACEHOLDERS.items():
        command = command.replace(placeholder, value)
    words = " ".join(shlex.split(command, comments=True)).rstrip(".")  # of a sentence
    return words.removeprefix(".venv/bin/ansible-playbook ").replace(" -i inventory/lab", "", 1)


def of_readers() -> dict[str, Typed]:
    """Those of README and of the pages for users, each once; the Chinese ones show the same."""
    found: dict[str, Typed] = {}
    for page, command in in_pages():
        if page == "README.md" or re.fullmatch(r"docs/\w+\.md", page):
            name = called(command)
            before = found.get(name, Typed(command.rstrip("."), ()))
            found[name] = before._replace(pages=tuple(sorted({*before.pages, page})))
    return found


def table() -> dict[str, dict[str, Any]]:
    """Which of them are run, in their order, and why the others are not."""
    read: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_suffix(".yml").read_text())
    return read
