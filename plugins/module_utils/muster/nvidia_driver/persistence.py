"""Derive the drop-in that keeps idle GPUs initialised from the unit in the package.

Ubuntu's unit disables persistence and stops when it is not needed. Debian's unit has different options and a different
account (nvpd). NVIDIA's unit may differ from both. Therefore the drop-in keeps the account and all other options of the
unit.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .facts import UnitFacts

UNIT = "nvidia-persistenced"
UNIT_FILE = f"/usr/lib/systemd/system/{UNIT}.service"
DROP_IN = f"/etc/systemd/system/{UNIT}.service.d/10-muster.conf"
OFF, ON = "--no-persistence-mode", "--persistence-mode"
TEXT = """\
# Written by Muster (role nvidia_driver). Without persistence mode, the driver shuts a GPU down when the last process
# closes it, and initialising it again takes seconds. ExecStart is that of the package's unit, except for the mode.
[Unit]
StopWhenUnneeded=false

[Service]
ExecStart=
ExecStart={command}
Restart=on-failure

[Install]
WantedBy=multi-user.target
"""


def drop_in(unit_text: str) -> str:
    """Return the drop-in for a unit; "" for a unit without ExecStart."""
    lines = re.findall(r"^ExecStart=[-@:+!]*(\S.*)$", unit_text, re.MULTILINE)
    if not lines:
        return ""
    program, *options = lines[-1].split()
    return TEXT.format(command=" ".join([program, ON, *(option for option in options if option not in (OFF, ON))]))


def is_on(unit: UnitFacts) -> bool:
    """Return whether the unit is running and keeps GPUs initialised, which is its default without options."""
    return unit["active"] == "active" and OFF not in unit["argv"].split()
