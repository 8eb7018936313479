"""Edit a single item in the text of a YAML file, in the style of the file. The rest of the file stays unchanged."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from .tree import MAPPING, SCALAR, CannotEditError, YamlPart

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

STEP = 2  # default indentation
# Words, names, paths and addresses that YAML 1.1 reads as text without quotes, also in flow mappings.
_PLAIN = re.compile(r"[A-Za-z/][\w./@+=()-]*( [\w./@+=()-]+)*", re.ASCII)
_ADDRESS = re.compile(r"\d{1,3}(\.\d{1,3}){3}")
_NOT_TEXT = re.compile(r"(?i)y|n|yes|no|on|off|true|false|null|\.(inf|nan)")
# Text that Ansible would evaluate as a template; values from nodes and users must not be templates.
TEMPLATE = ("{{", "{%", "{#")


def with_node(text: str, group: YamlPart, name: str, variables: Mapping[str, Any]) -> str:
    """Append a node to the hosts of a group, in the style of the existing hosts.

    group: the value of the group's key.
    """
    found = group.pair("hosts")
    if found is None:
        raise CannotEditError("has no hosts entry in the group")
    key, hosts = found
    if hosts.flow and hosts.pairs:
        return _in_flow(text, hosts, f"{flow(name)}: {flow(dict(variables))}")
    if hosts.empty:
        step = _indented(text, key) or STEP
        lines = entry(name, variables, step, on_one_line=False)
        return _below(text, key, hosts, lines, key.column + step)
    last_key, last = hosts.pairs[-1]
    step = _step_within(text, hosts)
    lines = entry(name, variables, step, on_one_line=last.flow and bool(last.pairs))
    return _insert(text, _after_comments(text, _line_end(text, last.end), last_key.column), lines, last_key.column)


def without(text: str, parent: YamlPart, key: str, others: Collection[str] = ()) -> str:
    """Remove a pair and its comments from a mapping. Comments that contain a name in `others` are kept."""
    found = parent.pair(key)
    if found is None:
        return text
    if parent.flow:
        return _out_of_flow(text, parent, found)
    name, value = found
    begin, end = _line_start(text, name.start), _line_end(text, value.end)
    if text[begin : name.start].strip() or not re.fullmatch(r"[ \t]*(#.*)?", text[value.end : end].rstrip("\r\n")):
        raise CannotEditError(f"has other content on the same lines as {key}")
    end = _after_comments(text, end, name.column + 1)
    begin = _before_own_comments(text, begin, name, others)
    if _is_blank(text, begin) and (end == len(text) or not _line(text, end).strip()):
        begin = _line_start(text, begin - 1)
    return text[:begin] + text[end:]


def with_value(text: str, parent: YamlPart, key: str, name: str, value: Any) -> str:
    """Set a variable of the node `key` in a mapping of hosts."""
    found = parent.pair(key)
    if found is None:
        raise CannotEditError(f"has no {key} in the group")
    own, variables = found
    if variables.kind == MAPPING and variables.pairs:
        return in_mapping(text, variables, name, value, _step_within(text, parent))
    if not variables.empty:
        raise CannotEditError(f"has the entry {key}, whose value is not a mapping of variables")
    if variables.kind == MAPPING or variables.value or parent.flow:
        short = flow({name: value})
        if variables.end > variables.start:
            return text[: variables.start] + short + text[variables.end :]
        colon = "" if ":" in text[own.end : variables.end] else ":"
        return f"{text[: variables.end]}{colon} {short}{text[variables.end :]}"
    step = _step_within(text, parent)
    return _insert(text, _line_end(text, variables.end), pair(name, value, step), own.column + step)


def in_mapping(text: str, mapping: YamlPart, name: str, value: Any, step: int = STEP) -> str:
    """Set a key in a mapping that is not empty."""
    found = mapping.pair(name)
    if mapping.flow:
        if found is None:
            return _in_flow(text, mapping, f"{flow(name)}: {flow(value)}")
        space = " " if found[1].start == found[1].end else ""
        return text[: found[1].start] + space + flow(value) + text[found[1].end :]
    column = mapping.pairs[0][0].column
    if found is None:
        end = _after_comments(text, _line_end(text, mapping.pairs[-1][1].end), column + 1)
        return _insert(text, end, pair(name, value, step), column)
    own, old = found
    lines = pair(name, value, step)
    tail = text[old.end : _line_end(text, old.end)]
    rest = [" " * column + line for line in lines[1:]]
    if "\n" in text[own.start : old.end]:
        return text[: own.start] + _break(text).join([lines[0], *rest]) + tail + text[_line_end(text, old.end) :]
    first = lines[0] + tail.rstrip("\r\n")
    ending = tail[len(tail.rstrip("\r\n")) :]
    return text[: own.start] + _break(text).join([first, *rest]) + ending + text[_line_end(text, old.end) :]


def _in_flow(text: str, mapping: YamlPart, written: str) -> str:
    last = mapping.pairs[-1][1]
    if last.end == last.start and ":" in text[mapping.pairs[-1][0].end : last.end]:
        raise CannotEditError("has an entry without a value on the same line")
    return f"{text[: last.end]}, {written}{text[last.end :]}"


def _out_of_flow(text: str, parent: YamlPart, found: tuple[YamlPart, YamlPart]) -> str:
    place = parent.pairs.index(found)
    begin, end = found[0].start, found[1].end
    if place + 1 < len(parent.pairs):
        end = parent.pairs[place + 1][0].start
    elif place:
        begin = text.index(",", parent.pairs[place - 1][1].end)
    if "#" in text[begin : found[0].start] + text[found[1].end : end]:
        raise CannotEditError(f"has a comment next to the entry {found[0].value}")
    return text[:begin] + text[end:]


def _below(text: str, key: YamlPart, empty: YamlPart, lines: list[str], column: int) -> str:
    """Insert a block below a key whose value is null or an empty mapping."""
    if empty.end > empty.start:
        if "\n" in text[key.end : empty.end]:
            raise CannotEditError(f"has an empty entry {key.value} that spans several lines")
        colon = text.index(":", key.end) + 1
        text = text[:colon] + text[empty.end :]
        empty = YamlPart(SCALAR, colon, colon, key.column)
    return _insert(text, _after_comments(text, _line_end(text, empty.end), key.column + 1), lines, column)


def _insert(text: str, at: int, lines: list[str], column: int) -> str:
    newline = _break(text)
    before = text[:at]
    if before and not before.endswith("\n"):
        before += newline
    return before + "".join(" " * column + line + newline for line in lines) + text[at:]


def _step_within(text: str, mapping: YamlPart) -> int:
    """Return how far the values in this mapping are indented."""
    for key, value in mapping.pairs:
        if value.kind == MAPPING and value.pairs and not value.flow:
            return value.pairs[0][0].column - key.column
    return _indented(text, mapping.pairs[0][0]) or STEP


def _indented(text: str, key: YamlPart) -> int:
    """Return how far the key is indented relative to its parent."""
    at = _line_start(text, key.start)
    while at:
        at = _line_start(text, at - 1)
        line = _line(text, at)
        column = len(line) - len(line.lstrip(" "))
        if line.strip() and not line.lstrip().startswith("#") and column < key.column:
            return key.column - column
    return 0


def _after_comments(text: str, at: int, column: int) -> int:
    """Return the position after the comments that follow directly and are indented at least this far."""
    while at < len(text):
        line = _line(text, at)
        if not line.lstrip(" ").startswith("#") or len(line) - len(line.lstrip(" ")) < column:
            break
        at += len(line)
    return at


def _before_own_comments(text: str, begin: int, key: YamlPart, others: Collection[str]) -> int:
    """Return the position before the comments directly above a node, if they name this node and none of the others."""
    at = begin
    while at:
        above = _line_start(text, at - 1)
        line = _line(text, above)
        if not line.lstrip(" ").startswith("#") or len(line) - len(line.lstrip(" ")) != key.column:
            break
        at = above
    words = set(re.findall(r"[\w.-]*\w", text[at:begin]))
    return at if key.value in words and not words & (set(others) - {key.value}) else begin


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, max(at, 0)) + 1


def _line_end(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found + 1


def _line(text: str, at: int) -> str:
    return text[at : _line_end(text, at)]


def _is_blank(text: str, at: int) -> bool:
    """Return whether the previous line is blank."""
    return at > 0 and not _line(text, _line_start(text, at - 1)).strip()


def _break(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def flow(value: Any) -> str:
    """Return the value in flow style, on one line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(str(key))}: {flow(one)}" for key, one in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(flow(one) for one in value) + "]"
    return _text(str(value))


def pair(name: str, value: Any, step: int) -> list[str]:
    """Return the unindented block-style lines that set this name. A mapping gets one line for each key."""
    if isinstance(value, dict) and value:
        inner = [line for key, one in value.items() for line in pair(str(key), one, step)]
        return [f"{flow(name)}:", *(" " * step + line for line in inner)]
    return [f"{flow(name)}: {flow(value)}"]


def entry(name: str, variables: Mapping[str, Any], step: int, *, on_one_line: bool) -> list[str]:
    """Return the lines that add a node to the hosts of a group."""
    if not variables:
        return [f"{flow(name)}:"]
    if on_one_line:
        return [f"{flow(name)}: {flow(dict(variables))}"]
    return pair(name, dict(variables), step)


def _text(text: str) -> str:
    if any(mark in text for mark in TEMPLATE):
        raise CannotEditError(f"would evaluate {text!r} as a template. Remove the characters {' '.join(TEMPLATE)}")
    if (_PLAIN.fullmatch(text) or _ADDRESS.fullmatch(text)) and not _NOT_TEXT.fullmatch(text):
        return text
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\x7f")
