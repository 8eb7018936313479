"""Words and lengths of texts: house words are limited, and descriptions and sentences are short."""

from __future__ import annotations

import re
from importlib.machinery import SourceFileLoader
from itertools import groupby
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RULES = yaml.safe_load((ROOT / "tests/unit/language.yml").read_text())
LOADER = SourceFileLoader("texts", str(ROOT / "script/texts"))
TEXTS: Any = ModuleType("texts")
TEXTS.__file__ = LOADER.path
LOADER.exec_module(TEXTS)
MOST_WORDS = {"sentence": 25, "option": 30}
# Generated pages, and records of what was measured.
NOT_GUIDES = ("CHANGELOG.md", "docs/dev", "docs/zh", "README.zh-CN.md", "docs/errors.md", "docs/findings.md")


@pytest.fixture(scope="module")
def texts() -> list[tuple[str, str, str]]:
    found = {*TEXTS.of_python(), *TEXTS.of_yaml()}
    return sorted((kind, place, text.replace("_", " ") if kind == "names" else text) for kind, place, text in found)


@pytest.mark.parametrize("word", RULES["words"], ids=lambda word: word["use"])
def test_number_of_house_words_does_not_grow(texts: list[tuple[str, str, str]], word: dict[str, Any]) -> None:
    pattern = re.compile(word["pattern"], re.IGNORECASE)
    found = [f"{place}: {' '.join(text.split())}" for _, place, text in texts if pattern.search(text)]
    assert len(found) <= word["remaining"], f"write {word['use']}:\n" + "\n".join(found)


def test_option_descriptions_are_short() -> None:
    long = [
        f"{path.parent.parent.name}.{name}: {entry}"
        for path in sorted((ROOT / "roles").glob("*/meta/argument_specs.yml"))
        for spec in yaml.safe_load(path.read_text())["argument_specs"].values()
        for name, option in spec.get("options", {}).items()
        for entry in entries(option["description"])
        if too_long(entry.partition("Example: ")[0], "option") or any(too_long(one, "sentence") for one in split(entry))
    ]
    assert long == []


def test_sentences_of_guides_are_short() -> None:
    pages = {str(path.relative_to(ROOT)): path for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))}
    guides = {name: path for name, path in pages.items() if not name.startswith(NOT_GUIDES)}
    long = {name: [one for one in sentences(path) if too_long(one, "sentence")] for name, path in guides.items()}
    allowed = RULES["long_sentences"]
    assert {name: found for name, found in long.items() if len(found) > allowed.get(name, 0)} == {}


def entries(description: str | list[str]) -> list[str]:
    return [description] if isinstance(description, str) else description


def sentences(page: Path) -> Iterator[str]:
    """Yield the sentences of paragraphs and lists, without code blocks and tables. A colon or semicolon ends one."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^ *([-*]|\d+\.) ", "\n", text, flags=re.MULTILINE)
    lines = [line.strip() for line in text.splitlines()]
    for prose, paragraph in groupby(lines, key=lambda line: bool(line) and not line.startswith(("|", "#", "<", "!"))):
        if prose:
            yield from split(" ".join(paragraph))


def split(text: str) -> list[str]:
    return re.split(r"(?<=[.!?:;])\s+", text)


def too_long(text: str, kind: str) -> bool:
    """Return whether a sentence has too many words. Inline code counts as one word, and link targets do not count."""
    plain = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "code", text))
    return len([word for word in plain.split() if re.search(r"\w", word)]) > MOST_WORDS[kind]
