"""junit.xml, read as a pipeline does."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET


def read_junit(text: str) -> ET.Element:
    """Return the one <testsuite> in it. Raises ParseError where it is not well-formed."""
    parser: Any = ET.XMLPullParser(["start"])
    parser.feed(text)
    parser.close()
    _, root = next(parser.read_events())
    assert isinstance(root, ET.Element)
    assert root.tag == "testsuites"
    (suite,) = root
    return suite
