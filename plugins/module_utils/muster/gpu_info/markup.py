"""A tolerant parser for the XML output of nvidia-smi.

Drivers print warnings before, after and inside the XML, and process names can contain any characters. A standard parser
would reject such output. This parser reads well-formed tags and the text between them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import unescape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TAG = re.compile(r"<(?P<end>/?)(?P<name>[A-Za-z_][\w.-]*)(?P<rest>[^<>]*)>")
ATTRIBUTE = re.compile(r"""([\w-]+)\s*=\s*["']([^"']*)["']""")


@dataclass
class Element:
    """An XML element, with its children in order and the text directly inside it."""

    name: str
    attributes: dict[str, str] = field(default_factory=dict)
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def find(self, path: str) -> Element | None:
        """Return the first element on a path such as pci/pcie_gen, or None."""
        here: Element | None = self
        for name in path.split("/"):
            here = next((child for child in here.children if child.name == name), None) if here else None
        return here

    def all(self, path: str) -> list[Element]:
        found = [self]
        for name in path.split("/"):
            found = [child for element in found for child in element.children if child.name == name]
        return found

    def texts(self) -> Iterator[str]:
        """Yield the texts of the element and its descendants."""
        yield self.text
        for child in self.children:
            yield from child.texts()

    def value(self, *paths: str) -> str:
        """Return the text of the first path that exists. Several paths are needed because drivers have renamed
        elements."""
        for path in paths:
            element = self.find(path)
            if element is not None:
                return element.text
        return ""


def parse(text: str, root: str) -> tuple[Element | None, str, bool]:
    """Return (root element, text outside the root element, whether the element was complete)."""
    start = text.find(f"<{root}")
    if start < 0:
        return None, _outside(text), False
    end = text.find(f"</{root}>", start)
    inside = text[start:] if end < 0 else text[start:end]
    outside = text[:start] + ("" if end < 0 else text[end + len(root) + 3 :])
    return _tree(inside, root), _outside(outside), end >= 0


def _outside(text: str) -> str:
    """Return the text without the XML declaration and the document type."""
    lines = [line.strip() for line in text.splitlines()]
    return "\n".join(line for line in lines if line and not line.startswith(("<?xml", "<!DOCTYPE")))


def _tree(text: str, root: str) -> Element:
    top = Element(root)
    open_elements = [top]
    position = 0
    for tag in TAG.finditer(text):
        open_elements[-1].text += text[position : tag.start()]
        position = tag.end()
        name = tag["name"]
        if tag["end"]:
            # An end tag without a start tag is ignored; an end tag of an outer element also closes the inner ones.
            if any(element.name == name for element in open_elements[1:]):
                while open_elements.pop().name != name:
                    pass
        elif name != root:
            element = Element(name, dict(ATTRIBUTE.findall(tag["rest"])))
            open_elements[-1].children.append(element)
            if not tag["rest"].rstrip().endswith("/"):
                open_elements.append(element)
    open_elements[-1].text += text[position:]
    _tidy(top)
    return top


def _tidy(element: Element) -> None:
    element.text = unescape(element.text).strip()
    for child in element.children:
        _tidy(child)
