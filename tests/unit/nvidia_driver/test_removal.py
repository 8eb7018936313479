"""What goes with a driver that is taken off, and what stands against it."""

from __future__ import annotations

import yaml

from muster.nvidia_driver.apt import parse
from muster.nvidia_driver.persistence import DROP_IN
from muster.nvidia_driver.removal import parts, refusals, remark
from paths import ROOT

# As apt 2.6 prints it.
SIMULATED = """\
Purg nvidia-open-580 [580.178.04-1]
Purg cuda-13-0 [13.0.1-1]
Purg libnvidia-compute [580.178.04-1]
"""


def test_the_parts_of_a_driver_and_nothing_else() -> None:
    there = ["cuda-toolkit-13-0", "libnccl2", "libcuda1", "nvidia-container-toolkit", "nvidia-open-580", "dkms"]
    assert parts(there) == ["libcuda1", "nvidia-open-580"]


def test_what_would_go_along_is_named() -> None:
    (said,) = refusals(parse(SIMULATED, "", 0))
    assert said == (
        "apt would remove cuda-13-0 too, which depend on the driver: remove them first, with sudo apt-get remove"
        " cuda-13-0, or leave wipe_driver out"
    )


def test_what_apt_cannot_do_is_said() -> None:
    assert refusals(parse("", "E: Held packages were changed\n", 100)) == ["Held packages were changed"]


def test_what_a_person_has_to_do_behind_it() -> None:
    assert remark([], loaded=False) == ""
    assert remark(["/usr/bin/nvidia-uninstall"], loaded=True) == (
        "a driver that a runfile installed stays: sudo /usr/bin/nvidia-uninstall; its module stays in the kernel until"
        " the next start: sudo systemctl reboot"
    )


def test_the_role_takes_off_the_file_that_is_made_from_the_unit() -> None:
    own = yaml.safe_load((ROOT / "roles/nvidia_driver/vars/main.yml").read_text())
    assert own["_nvidia_driver_drop_in"] == DROP_IN
