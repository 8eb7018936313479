"""Parse YAML into parts with their positions, using PyYAML and Ansible's rules for host ranges."""

from __future__ import annotations

from typing import Any

import yaml
from ansible.errors import AnsibleError
from ansible.plugins.inventory import detect_range, expand_hostname_range

from muster.inventory_file.changes import Language
from muster.inventory_file.tree import ALIAS, MAPPING, SCALAR, SEQUENCE, CannotEditError, YamlPart

NOTHING = YamlPart(MAPPING, 0, 0, 0)


def parse(text: str) -> YamlPart:
    """Parse one YAML document. Raises CannotEditError for invalid YAML or several documents."""
    try:
        found = list(yaml.parse(text, Loader=yaml.SafeLoader))
    except yaml.YAMLError as problem:
        raise CannotEditError(f"cannot be read as YAML ({' '.join(str(problem).split())})") from None
    if sum(isinstance(event, yaml.DocumentStartEvent) for event in found) > 1:
        raise CannotEditError("contains more than one document")
    events = [event for event in found if isinstance(event, (yaml.NodeEvent, yaml.CollectionEndEvent))]
    if not events:
        return NOTHING
    return _Builder(text, events).part()


def names(pattern: str) -> list[str]:
    """Return the nodes that a key under hosts stands for."""
    if not detect_range(pattern):
        return [pattern]
    try:
        return list(expand_hostname_range(pattern))
    except AnsibleError:
        return [pattern]


LANGUAGE = Language(parse, names)


class _Builder:
    def __init__(self, text: str, events: list[Any]) -> None:
        self.text = text
        self.events = iter(events)

    def part(self, event: Any = None) -> YamlPart:
        event = event or next(self.events)
        start, end, column = event.start_mark.index, event.end_mark.index, event.start_mark.column
        if isinstance(event, yaml.AliasEvent):
            return YamlPart(ALIAS, start, end, column, value=str(event.anchor))
        anchor, tag = event.anchor or "", event.tag or ""
        if isinstance(event, yaml.ScalarEvent):
            if event.style in ("|", ">"):
                end = start + len(self.text[start:end].rstrip())
            return YamlPart(SCALAR, start, end, column, event.value, tag or ("!" if event.style else ""), anchor)
        flow = bool(event.flow_style)
        items: list[YamlPart] = []
        while not isinstance(one := next(self.events), yaml.CollectionEndEvent):
            items.append(self.part(one))
        closing: Any = one
        if flow:
            end = closing.end_mark.index
        elif items:
            end = max(item.end for item in items)
        if isinstance(event, yaml.SequenceStartEvent):
            return YamlPart(SEQUENCE, start, end, column, "", tag, anchor, flow, items=tuple(items))
        pairs = tuple(zip(items[::2], items[1::2], strict=True))
        return YamlPart(MAPPING, start, end, column, "", tag, anchor, flow, pairs)
