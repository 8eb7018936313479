"""The drop-in that keeps GPUs initialised while nobody uses them, made from the unit that the package brought.

Ubuntu's unit switches persistence off and stops when nobody needs it; Debian's has other options and another account
(nvpd); NVIDIA's may differ again. So the account and whatever else is on the unit's own line are kept.
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
# Written by Muster (role nvidia_driver). Without persistence the driver gives a GPU up whenever its last user ends, and
# takes seconds to bring it up again. The line is that of the package's own unit, but for the mode.
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
    """Return the drop-in for this unit; "" for a unit that starts nothing."""
    lines = re.findall(r"^ExecStart=[-@:+!]*(\S.*)$", unit_text, re.MULTILINE)
    if not lines:
        return ""
    program, *options = lines[-1].split()
    return TEXT.format(command=" ".join([program, ON, *(option for option in options if option not in (OFF, ON))]))


def is_on(unit: UnitFacts) -> bool:
    """Whether the unit runs and keeps the GPUs initialised, which is what it does without any option."""
    return unit["active"] == "active" and OFF not in unit["argv"].split()
