"""A YAML file as parts that know where they stand in its text. Nothing of YAML is parsed here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SCALAR, MAPPING, SEQUENCE, ALIAS = "scalar", "mapping", "sequence", "alias"


class CannotEditError(ValueError):
    """Why somebody has to change the file by hand; continues a sentence that begins with its name."""


@dataclass(frozen=True)
class YamlPart:
    """start, end: where it stands in the text. column: of its start. value: of a scalar, or the anchor of an alias.

    tag: as it is written; "!" for what is in quotes.
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
        """Whether there is nothing, or what YAML takes for nothing."""
        null = self.kind == SCALAR and not self.tag and self.value in ("", "~", "null", "Null", "NULL")
        return null or (self.kind == MAPPING and not self.pairs)

    def get(self, key: str) -> YamlPart | None:
        return next((value for name, value in self.pairs if name.kind == SCALAR and name.value == key), None)

    def pair(self, key: str) -> tuple[YamlPart, YamlPart] | None:
        """The one pair with this key. Raises CannotEditError where it stands twice."""
        found = [pair for pair in self.pairs if pair[0].kind == SCALAR and pair[0].value == key]
        if len(found) > 1:
            raise CannotEditError(f"has {key} twice in the same place, of which only the last counts")
        return found[0] if found else None


def plain(root: YamlPart) -> Any:
    """What the file says, for comparing it with another: aliases resolved, and merged in (<<) what is to be."""
    anchors: dict[str, Any] = {}

    def read(part: YamlPart) -> Any:
        value: Any
        if part.kind == ALIAS:
            if part.value not in anchors:
                raise CannotEditError(f"would have *{part.value} in it, which stands for nothing")
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
