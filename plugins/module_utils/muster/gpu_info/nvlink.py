"""`nvidia-smi nvlink --status` and `--errorcounters`: the links of each GPU."""

from __future__ import annotations

import re
from typing import Any

GPU = re.compile(r"^\s*GPU (\d+):", re.IGNORECASE)
SPEED = re.compile(r"^\s*Link\s+(\d+):\s+([\d.]+)\s+GB/s", re.IGNORECASE)
INACTIVE = re.compile(r"^\s*Link\s+(\d+):\s+<?inactive>?", re.IGNORECASE)
SLEEP = re.compile(r"^\s*Link\s+(\d+)\s+in Sleep state", re.IGNORECASE)
# 470 wrote "Link 0: 3 replay errors", later ones "Link 0: Replay Errors: 3", N/A where the GPU does not count them.
ERRORS = re.compile(r"^\s*Link\s+(\d+):\s+(Replay|Recovery|CRC) Errors:\s+(\d+)", re.IGNORECASE)
OLD_ERRORS = re.compile(r"^\s*Link\s+(\d+):\s+(\d+)\s+(replay|recovery|flit CRC|data CRC) errors", re.IGNORECASE)
UNREADABLE = re.compile(r"NVLink (?:speed|link state|information) for link (\d+): (.+)", re.IGNORECASE)


def links(status: str, errors: str) -> dict[int, list[dict[str, Any]]]:
    """Return the links of each GPU by its index: [{link, state, gbs, replay, recovery, crc}].

    state: active, inactive, sleeping or unreadable. gbs: what one direction carries, raw, in GB/s.
    """
    found: dict[int, dict[int, dict[str, Any]]] = {}
    for gpu, line in _by_gpu(status):
        links_of = found.setdefault(gpu, {})
        if match := SPEED.match(line):
            links_of[int(match[1])] = _link(int(match[1]), "active", float(match[2]))
        elif match := INACTIVE.match(line):
            links_of[int(match[1])] = _link(int(match[1]), "inactive")
        elif match := SLEEP.match(line):
            links_of[int(match[1])] = _link(int(match[1]), "sleeping")
        elif match := UNREADABLE.search(line):
            links_of[int(match[1])] = _link(int(match[1]), "inactive" if "active" in match[2] else "unreadable")
    for gpu, line in _by_gpu(errors):
        if match := ERRORS.match(line):
            link, kind, count = int(match[1]), match[2].lower(), int(match[3])
        elif match := OLD_ERRORS.match(line):
            link, kind, count = int(match[1]), match[3].lower().split()[-1], int(match[2])
        else:
            continue
        entry = found.get(gpu, {}).get(link)
        if entry is not None:
            entry[kind] = (entry[kind] or 0) + count
    return {gpu: [by_link[link] for link in sorted(by_link)] for gpu, by_link in found.items()}


def _link(number: int, state: str, gbs: float | None = None) -> dict[str, Any]:
    return {"link": number, "state": state, "gbs": gbs, "replay": None, "recovery": None, "crc": None}


def _by_gpu(text: str) -> list[tuple[int, str]]:
    lines = []
    gpu = -1
    for line in text.splitlines():
        if match := GPU.match(line):
            gpu = int(match[1])
        elif gpu >= 0:
            lines.append((gpu, line))
    return lines
