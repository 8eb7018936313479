"""junit.xml, as Jenkins, GitLab and GitHub's actions read it.

There is no standard: what is written is what https://github.com/testmoapp/junitxml lists as understood by all of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from muster.verdict.printable import printable

if TYPE_CHECKING:
    from muster.report.pipelines import JUnitCase, Suite

# Printable, and still no characters of XML 1.0 (https://www.w3.org/TR/xml/#charsets).
NONE_OF_XML = re.compile("[\ufffe\uffff]")
LONGEST = 4000  # characters of one text


def xml(suite: Suite) -> str:
    counts = {name: str(count) for name, count in suite.counts.items()}
    about = {"name": text(suite.name), **counts, "time": f"{suite.seconds:.3f}", "timestamp": text(suite.began[:19])}
    whole = ET.Element("testsuites", {"name": "muster", **counts, "time": about["time"]})
    inner = ET.SubElement(whole, "testsuite", about)
    for case in suite.cases:
        add(inner, case)
    ET.indent(whole)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(whole, encoding="unicode") + "\n"


def add(suite: ET.Element, case: JUnitCase) -> None:
    about = {"classname": text(f"muster.{case.of}"), "name": text(case.name), "time": f"{case.seconds:.3f}"}
    element = ET.SubElement(suite, "testcase", about)
    if case.result == "pass":
        if case.text:
            ET.SubElement(element, "system-out").text = text(case.text)
        return
    inner = ET.SubElement(element, case.result, {"message": text(case.message)})
    if case.result != "skipped":
        inner.text = text(case.text)


def text(value: str) -> str:
    shown = NONE_OF_XML.sub("\N{REPLACEMENT CHARACTER}", printable(value))
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"
