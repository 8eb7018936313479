"""A virtual machine is known by systemd, or by its processor where systemd's program is not there."""

from __future__ import annotations

import pytest

from muster_node.looks import system
from muster_node.tools.run import CommandResult

# As a virtual machine of KVM has it, and a machine of its own; shortened.
SHOWN = "processor\t: 0\nflags\t\t: fpu vme de pse tsc msr ht syscall nx constant_tsc cpuid hypervisor lahf_lm abm\n"
OWN = "processor\t: 0\nflags\t\t: fpu vme de pse tsc msr ht syscall nx constant_tsc cpuid lahf_lm abm\n"
NOT_THERE = "systemd-detect-virt is not there"
MISSING = CommandResult("", NOT_THERE, missing=True)


@pytest.mark.parametrize(
    ("said", "cpuinfo", "container", "word", "why"),
    [
        (CommandResult("none\n", "systemd-detect-virt ended with 1", code=1), SHOWN, False, "none", ""),
        (CommandResult("kvm\n"), SHOWN, False, "kvm", ""),
        (CommandResult("podman\n"), SHOWN, True, "podman", ""),
        (MISSING, SHOWN, False, "vm-other", ""),
        (MISSING, SHOWN, True, "", NOT_THERE),
        (MISSING, OWN, False, "", NOT_THERE),
        (MISSING, "", False, "", NOT_THERE),
    ],
)
def test_what_it_is(
    said: CommandResult, cpuinfo: str, container: bool, word: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "run", lambda *_: said)
    files = {"/proc/cpuinfo": cpuinfo, "/proc/2/comm": "sh\n" if container else "kthreadd\n"}
    monkeypatch.setattr(system, "read", lambda path: CommandResult(files[path]))
    assert system.virtualization()[:2] == (word, why)
