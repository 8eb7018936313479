"""Recorded firewall states of two nodes: a bare node, and a node with the rules of the role."""

from __future__ import annotations

from pathlib import Path

from cases import document_of, documents_of
from recordings import patched

RECORDED = Path(__file__).parent / "unit/firewall/recorded"
BARE = RECORDED / "bare.yml"
(FINISHED,) = documents_of(patched(BARE.read_text(), (RECORDED / "finished.yml.patch").read_text()))
LOOKS = {"bare": document_of(BARE), "finished": FINISHED}
