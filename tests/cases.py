"""Case files: every YAML file in cases/<folder>/ next to a test file is a case of one test.

    @cases(__file__, "preflight")
    def test_preflight(case: dict[str, Any]) -> None: ...

A case has the name of its file. If a file has several documents, the cases are numbered.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

# The C parser gives the same result several times faster, but PyYAML may have been built without it.
Loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def cases(test_file: str, folder: str) -> pytest.MarkDecorator:
    """Parametrize the argument `case` of a test with the cases in a folder."""
    found = load_cases(Path(test_file).parent / "cases" / folder)
    return pytest.mark.parametrize("case", found.values(), ids=found)


def documents_of(text: str) -> Iterator[Any]:
    yield from yaml.load_all(text, Loader=Loader)


def document_of(path: Path) -> Any:
    """Return the only document of a YAML file."""
    (document,) = documents_of(path.read_text(encoding="utf-8"))
    return document


def load_cases(folder: Path) -> dict[str, Any]:
    """Return the cases by name. Raises ValueError if there are no cases, because a test without cases proves
    nothing."""
    found: dict[str, Any] = {}
    for path in sorted(folder.iterdir()):
        documents = list(documents_of(path.read_text(encoding="utf-8")))
        numbers = range(1, len(documents) + 1)
        names = [f"{path.stem}-{number}" for number in numbers] if len(documents) > 1 else [path.stem]
        found.update(zip(names, documents, strict=True))
    if not found:
        raise ValueError(f"there is no case in {folder}")
    return found
