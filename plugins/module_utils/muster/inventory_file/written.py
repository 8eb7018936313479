"""Values as an inventory has them: YAML that Ansible reads as what was meant, and that a person would have written."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from .tree import CannotEditError

if TYPE_CHECKING:
    from collections.abc import Mapping

# Words, names, paths and addresses: what YAML 1.1 takes for text without quotes, in a flow mapping as well.
_PLAIN = re.compile(r"[A-Za-z/][\w./@+=()-]*( [\w./@+=()-]+)*", re.ASCII)
_ADDRESS = re.compile(r"\d{1,3}(\.\d{1,3}){3}")
_NOT_TEXT = re.compile(r"(?i)y|n|yes|no|on|off|true|false|null|\.(inf|nan)")
# Text that Ansible would take for a template of its own; what nodes and people say is none.
TEMPLATE = ("{{", "{%", "{#")


def flow(value: Any) -> str:
    """The value on one line."""
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
    """Lines of a block mapping for this name, not indented; a mapping takes a line for each of its own names."""
    if isinstance(value, dict) and value:
        inner = [line for key, one in value.items() for line in pair(str(key), one, step)]
        return [f"{flow(name)}:", *(" " * step + line for line in inner)]
    return [f"{flow(name)}: {flow(value)}"]


def entry(name: str, variables: Mapping[str, Any], step: int, *, on_one_line: bool) -> list[str]:
    """Lines of a node among the hosts of a group."""
    if not variables:
        return [f"{flow(name)}:"]
    if on_one_line:
        return [f"{flow(name)}: {flow(dict(variables))}"]
    return pair(name, dict(variables), step)


def _text(text: str) -> str:
    if any(mark in text for mark in TEMPLATE):
        raise CannotEditError(f"would take {text!r} for a template. Write it without {' '.join(TEMPLATE)}")
    if (_PLAIN.fullmatch(text) or _ADDRESS.fullmatch(text)) and not _NOT_TEXT.fullmatch(text):
        return text
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\x7f")
