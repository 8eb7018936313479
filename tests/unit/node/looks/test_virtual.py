"""Virtual machines are detected by systemd-detect-virt, or by CPU flags if it is not installed."""

from __future__ import annotations

import pytest

from muster_node.looks import system
from muster_node.tools.run import CommandResult

# /proc/cpuinfo of a KVM virtual machine and of a bare-metal machine, shortened.
VIRTUAL = "processor\t: 0\nflags\t\t: fpu vme de pse tsc msr ht syscall nx constant_tsc cpuid hypervisor lahf_lm abm\n"
BARE_METAL = "processor\t: 0\nflags\t\t: fpu vme de pse tsc msr ht syscall nx constant_tsc cpuid lahf_lm abm\n"
NOT_INSTALLED = "systemd-detect-virt is not there"
MISSING = CommandResult("", NOT_INSTALLED, missing=True)


@pytest.mark.parametrize(
    ("output", "cpuinfo", "container", "word", "why"),
    [
        (CommandResult("none\n", "systemd-detect-virt ended with 1", code=1), VIRTUAL, False, "none", ""),
        (CommandResult("kvm\n"), VIRTUAL, False, "kvm", ""),
        (CommandResult("podman\n"), VIRTUAL, True, "podman", ""),
        (MISSING, VIRTUAL, False, "vm-other", ""),
        (MISSING, VIRTUAL, True, "", NOT_INSTALLED),
        (MISSING, BARE_METAL, False, "", NOT_INSTALLED),
        (MISSING, "", False, "", NOT_INSTALLED),
    ],
)
def test_virtualization_is_detected(
    output: CommandResult, cpuinfo: str, container: bool, word: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "run", lambda *_: output)
    files = {"/proc/cpuinfo": cpuinfo, "/proc/2/comm": "sh\n" if container else "kthreadd\n"}
    monkeypatch.setattr(system, "read", lambda path: CommandResult(files[path]))
    assert system.virtualization()[:2] == (word, why)
