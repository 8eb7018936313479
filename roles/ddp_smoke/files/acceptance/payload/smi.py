"""What nvidia-smi says of one GPU while it works: temperature, clocks, why they are lowered, ECC errors, its link."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

SECONDS = 10.0  # a GPU that has fallen off the bus can hold nvidia-smi
FIELDS = {
    "temperature_c": "temperature.gpu",
    "sm_mhz": "clocks.sm",
    "sm_max_mhz": "clocks.max.sm",
    "power_w": "power.draw",
    "reasons": "clocks_event_reasons.active",
    "ecc_corrected": "ecc.errors.corrected.volatile.total",
    "ecc_uncorrected": "ecc.errors.uncorrected.volatile.total",
    "link_generation": "pcie.link.gen.max",
    "link_width": "pcie.link.width.max",
}
# Drivers before 535 know the reasons by their older name only.
OLDER = {**FIELDS, "reasons": "clocks_throttle_reasons.active"}
# The bits of the reasons that say that something is wrong. Idle, the power limit, application clocks, sync boost and
# the display's clocks are settings or normal under load.
# https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
WRONG = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


def look(uuid: str) -> dict[str, Any]:
    """By the names above; a value that is not told is None. {} where there is no answer."""
    program = shutil.which("nvidia-smi")
    if not program or not uuid:
        return {}
    for fields in (FIELDS, OLDER):
        words = [program, f"--id={uuid}", f"--query-gpu={','.join(fields.values())}", "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return {}
        if done.returncode == 0:
            return parsed(done.stdout)
    return {}


def parsed(text: str) -> dict[str, Any]:
    """The first line's values; {} where it is not such a line."""
    values = [value.strip() for value in text.strip().partition("\n")[0].split(",")]
    if len(values) != len(FIELDS):
        return {}
    said = {name: number(value) for name, value in zip(FIELDS, values, strict=True)}
    return {**said, "throttled": reasons(values[list(FIELDS).index("reasons")])}


def number(text: str) -> float | None:
    try:
        return float(int(text, 16) if text.startswith("0x") else float(text))
    except ValueError:  # [N/A], [Not Supported]
        return None


def reasons(text: str) -> list[str] | None:
    """Why the clocks are lowered, of what should not be; None where it is not told."""
    bits = number(text)
    return None if bits is None else [name for bit, name in WRONG.items() if int(bits) & bit]
