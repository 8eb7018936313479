"""A YAML document as a tree of nodes with their positions in the text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SCALAR, MAPPING, SEQUENCE, ALIAS = "scalar", "mapping", "sequence", "alias"


class CannotEditError(ValueError):
    """The file must be edited manually. The message continues a sentence that starts with the file name."""


@dataclass(frozen=True)
class YamlPart:
    """A node of the YAML document. start, end: positions in the text. column: column of the start. value: value of a
    scalar, or anchor name of an alias.

    tag: the tag as written; "!" for quoted scalars.
    """

    kind: str
    start: int
    end: int
    column: int
    value: str = ""
    tag: str = ""
    anchor: str = ""
    flow: bool = False
    pairs: tuple[tuple[YamlPart, YamlPart], ...] = ()
    items: tuple[YamlPart, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether the value is null or an empty mapping."""
        null = self.kind == SCALAR and not self.tag and self.value in ("", "~", "null", "Null", "NULL")
        return null or (self.kind == MAPPING and not self.pairs)

    def get(self, key: str) -> YamlPart | None:
        return next((value for name, value in self.pairs if name.kind == SCALAR and name.value == key), None)

    def pair(self, key: str) -> tuple[YamlPart, YamlPart] | None:
        """Return the pair with this key. Raises CannotEditError if the key occurs twice."""
        found = [pair for pair in self.pairs if pair[0].kind == SCALAR and pair[0].value == key]
        if len(found) > 1:
            raise CannotEditError(f"has a duplicate key {key}; only the last value is used")
        return found[0] if found else None


def plain(root: YamlPart) -> Any:
    """Return the value for comparison, with aliases and merges (<<) resolved."""
    anchors: dict[str, Any] = {}

    def read(part: YamlPart) -> Any:
        value: Any
        if part.kind == ALIAS:
            if part.value not in anchors:
                raise CannotEditError(f"would contain the alias *{part.value}, whose anchor is not defined")
            return anchors[part.value]
        if part.kind == MAPPING:
            value = _merged(
                [(key.value if key.kind == SCALAR else repr(read(key)), read(one)) for key, one in part.pairs]
            )
        elif part.kind == SEQUENCE:
            value = [read(item) for item in part.items]
        else:
            value = None if part.empty else (part.tag, part.value)
        if part.anchor:
            anchors[part.anchor] = value
        return value

    return read(root)


def _merged(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for base in [value for key, value in pairs if key == "<<"]:
        for one in reversed(base) if isinstance(base, list) else [base]:
            result.update(one if isinstance(one, dict) else {})
    return {**result, **{key: value for key, value in pairs if key != "<<"}}
