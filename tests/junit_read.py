"""Read junit.xml as a CI pipeline does."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET


def read_junit(text: str) -> ET.Element:
    """Return the only <testsuite>. Raises ParseError if the XML is not well-formed."""
    parser: Any = ET.XMLPullParser(["start"])
    parser.feed(text)
    parser.close()
    _, root = next(parser.read_events())
    assert isinstance(root, ET.Element)
    assert root.tag == "testsuites"
    (suite,) = root
    return suite
