"""What kind of virtual machine or container this is, in the words of systemd-detect-virt."""

from __future__ import annotations

import re

from ..tools.run import CommandResult, read, run

# A processor that a hypervisor shows says so among its flags (x86). systemd's own word for a machine without a name.
SHOWN = re.compile(r"^flags\s*:.* hypervisor\b", re.MULTILINE)
UNNAMED = "vm-other"
# In a container, whose processor is its host's, the second process is not the kernel's own. (Files such as /.dockerenv
# do not tell: virtual machines are made from images of containers, too.)
SECOND = "/proc/2/comm"
OF_THE_KERNEL = "kthreadd"


def look() -> CommandResult:
    """One word: "none" on a machine of its own, and nothing where it is not known."""
    # It ends with 1 on a machine that is none of the known virtual ones, and says "none".
    said = run("systemd-detect-virt")
    if word := said.text.strip():
        return CommandResult(word)
    if read(SECOND).text.strip() == OF_THE_KERNEL and SHOWN.search(read("/proc/cpuinfo").text):
        return CommandResult(UNNAMED)
    return CommandResult("", said.why)
