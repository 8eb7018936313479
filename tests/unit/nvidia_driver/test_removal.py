"""Packages that are removed with the driver, and reasons against a removal."""

from __future__ import annotations

import yaml

from muster.nvidia_driver.apt import parse
from muster.nvidia_driver.persistence import DROP_IN
from muster.nvidia_driver.removal import parts, refusals, remark
from paths import ROOT

# Output of apt 2.6
SIMULATED = """\
Purg nvidia-open-580 [580.178.04-1]
Purg cuda-13-0 [13.0.1-1]
Purg libnvidia-compute [580.178.04-1]
"""


def test_only_driver_packages_are_removed() -> None:
    there = ["cuda-toolkit-13-0", "libnccl2", "libcuda1", "nvidia-container-toolkit", "nvidia-open-580", "dkms"]
    assert parts(there) == ["libcuda1", "nvidia-open-580"]


def test_packages_that_depend_on_the_driver_are_named() -> None:
    (said,) = refusals(parse(SIMULATED, "", 0))
    assert said == (
        "apt would also remove cuda-13-0, because they depend on the driver: remove them first "
        "with sudo apt-get remove cuda-13-0, or do not set wipe_driver"
    )


def test_errors_of_apt_are_returned() -> None:
    assert refusals(parse("", "E: Held packages were changed\n", 100)) == ["Held packages were changed"]


def test_manual_steps_after_the_removal_are_listed() -> None:
    assert remark([], loaded=False) == ""
    assert remark(["/usr/bin/nvidia-uninstall"], loaded=True) == (
        "a driver from a runfile is still installed; remove it: sudo /usr/bin/nvidia-uninstall; "
        "the driver module stays loaded until the next boot: sudo systemctl reboot"
    )


def test_role_removes_the_drop_in() -> None:
    own = yaml.safe_load((ROOT / "roles/nvidia_driver/vars/main.yml").read_text())
    assert own["_nvidia_driver_drop_in"] == DROP_IN
