"""Parse values printed by nvidia-smi: "81559 MiB", "16x", "Enabled", and the many forms of a missing value."""

from __future__ import annotations

import re

# From the strings of nvidia-smi 470 to 615: texts for a missing value.
NOTHING = ("", "n/a", "none", "[n/a]", "not supported", "[not supported]", "not available", "insufficient permissions")
# Error messages of libnvidia-ml instead of a value; the GPU is listed nevertheless.
LOST = "gpu is lost"
NEEDS_RESET = "gpu requires reset"
BROKEN = ("unknown error", "[unknown error]", "err!", LOST, f"[{LOST}]", NEEDS_RESET, f"[{NEEDS_RESET}]")
YES = ("yes", "enabled", "active", "true", "on")
NO = ("no", "disabled", "not active", "false", "off", "inactive")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def known(text: str) -> bool:
    word = text.strip().lower()
    return word not in NOTHING and word not in BROKEN and "deprecated" not in word


def word(text: str) -> str | None:
    return text.strip() if known(text) else None


def number(text: str) -> float | None:
    """Return the leading number of a value, without the unit."""
    found = NUMBER.match(text.strip()) if known(text) else None
    return float(found[0]) if found else None


def whole(text: str) -> int | None:
    value = number(text)
    return None if value is None else int(value)


def flag(text: str) -> bool | None:
    """Return whether a setting is on; None if the GPU does not have the setting."""
    said = text.strip().lower()
    if said in YES:
        return True
    return False if said in NO else None


def broken(text: str) -> bool:
    return text.strip().lower() in BROKEN


def slot(bus_id: str) -> str:
    """Convert a bus id of nvidia-smi (eight digits for the domain: 00000000:18:00.0) to the kernel's notation."""
    domain, colon, rest = bus_id.strip().lower().partition(":")
    try:
        return f"{int(domain, 16):04x}:{rest}" if colon else domain
    except ValueError:
        return f"{domain}:{rest}"


def address(slot: str) -> str:
    """Return a slot in the form that `nvidia-smi -i` accepts. GPU numbers are not used, because on some machines they
    are not in bus order."""
    domain, _, rest = slot.upper().partition(":")
    return f"{domain.rjust(8, '0')}:{rest}"
