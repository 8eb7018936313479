"""Parse the output of `nvidia-smi topo -m`, `nvidia-smi nvlink --status` and `nvidia-smi nvlink --errorcounters`."""

from __future__ import annotations

import re
from typing import Any

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
DEVICE = re.compile(r"(?:GPU|NIC|CPU)\d+|mlx\d\S*")
HOW = re.compile(r"X|SYS|NODE|PHB|PXB|PIX|NV\d+|C2C|N/A|Unknown")
NAMED = re.compile(r"^\s*(NIC\d+):\s+(\S+)\s*$")
GPU = re.compile(r"^\s*GPU (\d+):(?:.*\(UUID: ([^()\s]+)\))?", re.IGNORECASE)
SPEED = re.compile(r"^\s*Link\s+(\d+):\s+([\d.]+)\s+GB/s", re.IGNORECASE)
INACTIVE = re.compile(r"^\s*Link\s+(\d+):\s+<?inactive>?", re.IGNORECASE)
SLEEP = re.compile(r"^\s*Link\s+(\d+)\s+in Sleep state", re.IGNORECASE)
# 470 printed "Link 0: 3 replay errors", later versions "Link 0: Replay Errors: 3", or N/A if the GPU has no counter.
COUNT = re.compile(r"^\s*Link\s+(\d+):\s+([A-Za-z].*?):\s+(\d+)\s*$")
OLD_COUNT = re.compile(r"^\s*Link\s+(\d+):\s+(\d+)\s+(replay errors|recovery errors|flit CRC errors|data CRC errors)")
UNREADABLE = re.compile(r"NVLink (?:speed|link state|information) for link (\d+): (.+)", re.IGNORECASE)
# The driver does not support the query, such as 595 with MIG on: the state of the links is unknown.
NOT_ASKED = re.compile(r"queries are not supported", re.IGNORECASE)

# Error counters in the strings of the programs of 470 to 615, and in the output of B300 under 595.91.07 (NVLink 5 has
# no replay errors). CRC errors matter only by their rate, which NVIDIA/DCGM monitors.
ERRORS = (
    *("replay errors", "recovery errors"),
    *("failed link recoveries", "link recovery successful events", "effective errors", "symbol errors"),
    *("malformed packet errors", "buffer overrun errors", "rx errors", "rx remote errors", "rx general errors"),
    *("local link integrity errors", "tx discards"),
)
# Counters that also increase on healthy links: traffic, corrected errors, ratios, and sums of the counters above.
NO_ERRORS = re.compile(
    r"[tr]x (?:packets|bytes)|fec errors - \d+|raw (?:errors|ber) .*|effective ber|symbol ber|plr .*|"
    r"total link recovery events|(?:flit |data )?crc errors"
)


def topology(text: str) -> dict[str, Any] | None:
    """Return the topology matrix by the names in nvidia-smi (GPU0, NIC0); None if the text contains no matrix."""
    lines = [ESCAPE.sub("", line).rstrip() for line in text.splitlines()]
    # GPU0 is missing if that GPU is lost.
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
    """Split a row at tabs. Cells can be empty, and the X is surrounded by blanks."""
    return [cell.strip() for cell in line.split("\t")]


def links(status: str, errors: str) -> dict[str, dict[str, Any]]:
    """Return {links, why} of each GPU, by UUID and by number.

    links: [{link, state, gbs, errors, unknown}]. state: active, inactive, sleeping or unreadable. gbs: raw rate of one
    direction in GB/s. errors: {name: count}, empty if there are no counters. unknown: the counters with unknown names,
    in the same form. why: the message that nvidia-smi printed instead of links.
    """
    found: dict[str, dict[int, dict[str, Any]]] = {}
    whys: dict[str, str] = {}
    names: dict[str, str] = {}
    for number, uuid, line in _by_gpu(status):
        names[number] = uuid
        links_of = found.setdefault(number, {})
        if match := SPEED.match(line):
            links_of[int(match[1])] = _link(int(match[1]), "active", float(match[2]))
        elif match := INACTIVE.match(line):
            links_of[int(match[1])] = _link(int(match[1]), "inactive")
        elif match := SLEEP.match(line):
            links_of[int(match[1])] = _link(int(match[1]), "sleeping")
        elif match := UNREADABLE.search(line):
            links_of[int(match[1])] = _link(int(match[1]), "inactive" if "active" in match[2] else "unreadable")
        elif NOT_ASKED.search(line):
            whys[number] = line.strip()
    for number, _, line in _by_gpu(errors):
        if match := COUNT.match(line):
            link, name, count = int(match[1]), match[2].lower(), int(match[3])
        elif match := OLD_COUNT.match(line):
            link, name, count = int(match[1]), match[3].lower(), int(match[2])
        else:
            continue
        entry = found.get(number, {}).get(link)
        if entry is not None and not NO_ERRORS.fullmatch(name):
            entry["errors" if name in ERRORS else "unknown"][name] = count
    seen = {
        number: {"links": [by_link[link] for link in sorted(by_link)], "why": whys.get(number, "")}
        for number, by_link in found.items()
    }
    return seen | {uuid: seen[number] for number, uuid in names.items() if uuid}


def _link(number: int, state: str, gbs: float | None = None) -> dict[str, Any]:
    return {"link": number, "state": state, "gbs": gbs, "errors": {}, "unknown": {}}


def _by_gpu(text: str) -> list[tuple[str, str, str]]:
    lines = []
    number = uuid = ""
    for line in text.splitlines():
        if match := GPU.match(line):
            number, uuid = match[1], match[2] or ""
        elif number:
            lines.append((number, uuid, line))
    return lines
