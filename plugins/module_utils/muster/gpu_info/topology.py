"""`nvidia-smi topo -m`: how each GPU reaches each other GPU and each network adapter."""

from __future__ import annotations

import re
from typing import Any

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
DEVICE = re.compile(r"(?:GPU|NIC|CPU)\d+|mlx\d\S*")
HOW = re.compile(r"X|SYS|NODE|PHB|PXB|PIX|NV\d+|C2C|N/A|Unknown")
NAMED = re.compile(r"^\s*(NIC\d+):\s+(\S+)\s*$")


def topology(text: str) -> dict[str, Any] | None:
    """Return the matrix, by the names that nvidia-smi gives: GPU0, NIC0; None when there is none in the text."""
    lines = [ESCAPE.sub("", line).rstrip() for line in text.splitlines()]
    # Without a GPU0, when that one is lost.
    head = next((number for number, line in enumerate(lines) if re.match(r"\tGPU\d+\t", line)), None)
    if head is None:
        return None
    columns = _cells(lines[head])[1:]
    devices = [column for column in columns if DEVICE.fullmatch(column)]
    between: dict[str, dict[str, str]] = {}
    cpus: dict[str, str] = {}
    numa: dict[str, int | None] = {}
    for line in lines[head + 1 :]:
        row = _cells(line)
        if len(row) <= len(devices) or not DEVICE.fullmatch(row[0]):
            if between:
                break
            continue
        ways = row[1 : len(devices) + 1]
        if not all(HOW.fullmatch(way) for way in ways):
            continue
        between[row[0]] = {
            peer: way for peer, way in zip(devices, ways, strict=True) if way not in ("X", "N/A", "Unknown")
        }
        rest = row[len(devices) + 1 :]
        if row[0].startswith("GPU") and "CPU Affinity" in columns and rest:
            if rest[0] not in ("", "N/A"):
                cpus[row[0]] = rest[0]
            numa[row[0]] = int(rest[1]) if len(rest) > 1 and rest[1].isdigit() else None
    nics = {found[1]: found[2] for line in lines if (found := NAMED.match(line))}
    return {"between": between, "cpus": cpus, "numa": numa, "nics": nics} if between else None


def _cells(line: str) -> list[str]:
    """Split a row: by tabs, between which a cell may be empty, and there are blanks around the X."""
    return [cell.strip() for cell in line.split("\t")]
