"""Every file in cases/apt describes one request to apt: need, arguments, output of apt, and reasons for rejection.

The output has the format of apt 2.6 and 2.8.
"""

from __future__ import annotations

from typing import Any

import pytest

from cases import cases
from muster.nvidia_driver import apt
from muster.nvidia_driver.family import is_part, keeps_step, named_branch, upstream


@cases(__file__, "apt")
def test_apt_request_matches_the_case(case: dict[str, Any]) -> None:
    values: dict[str, Any] = {
        key: tuple(each) if isinstance(each, list) else each for key, each in case["need"].items()
    }
    # By default, the source has the installed and the requested version of every package.
    requested = f"{values.get('keep') or str(values['branch']) + '.99.99'}-1"
    everything = {**dict.fromkeys(values["names"], ""), **values["installed"]}
    values["offered"] = {name: (requested, version) for name, version in everything.items()}
    values["offered"].update({name: tuple(versions) for name, versions in case.get("offered", {}).items()})
    need = apt.PackageNeed(**values)
    assert apt.apt_words(need, case.get("late", [])) == case["words"]
    assert apt.unmet(need) == case.get("unmet", [])
    answer = apt.parse(case.get("out", ""), case.get("err", ""), case.get("code", 0))
    assert dict(answer.installs) == case.get("installs", {})
    assert list(answer.removes) == case.get("removes", [])
    assert list(answer.configures) == case.get("configures", [])
    assert list(answer.errors) == case.get("errors", [])
    if "stragglers" in case:
        assert apt.stragglers(need, answer) == case["stragglers"]
    assert apt.refusals(need, answer) == case.get("refusals", [])


@pytest.mark.parametrize(
    ("version", "wanted"),
    [
        ("580.159.04-1ubuntu1", "580.159.04"),
        ("580.126.20-0ubuntu0.24.04.2", "580.126.20"),
        ("1:580.159.04-1", "580.159.04"),
        ("535.261.03-1~deb12u1", "535.261.03"),
        ("590.48-1", "590.48"),
        ("580-1", ""),
        ("1.19.1-1", ""),
        ("6.8.0-90.91+1", ""),
        ("2025.10.14-1", ""),
        ("", ""),
    ],
)
def test_driver_version_is_read_from_a_package_version(version: str, wanted: str) -> None:
    assert upstream(version) == wanted


@pytest.mark.parametrize(
    ("name", "source", "wanted"),
    [
        ("nvidia-open-580", "nvidia", True),
        ("nvidia-persistenced", "nvidia", True),
        ("nvidia-persistenced", "debian", False),
        ("nvidia-modprobe", "ubuntu", False),
        ("libnvidia-nscq", "nvidia", True),
        ("libnvsdm", "nvidia", True),
        ("nvidia-imex", "nvidia", True),
        ("libcuda1", "debian", True),
        ("firmware-nvidia-gsp", "debian", True),
        ("libnvidia-compute-580:i386", "nvidia", True),
        ("nvidia-settings", "nvidia", False),
        ("nvidia-driver-pinning-580", "nvidia", False),
        ("nvidia-container-toolkit", "nvidia", False),
        ("libnvidia-container1", "nvidia", False),
        ("nvidia-cuda-toolkit", "debian", False),
        ("libcudnn9-cuda-13", "nvidia", False),
        ("cuda-toolkit-13-0", "nvidia", False),
        ("linux-modules-nvidia-580-server-open-generic", "ubuntu", False),
    ],
)
def test_packages_tied_to_the_driver_version_are_recognized(name: str, source: str, wanted: bool) -> None:
    assert keeps_step(name, "580.159.04-1", source) is wanted


def test_driver_parts_and_branches_are_recognized_by_package_name() -> None:
    assert is_part("linux-modules-nvidia-580-server-open-generic")
    assert is_part("nvidia-driver-pinning-580")
    assert not any(map(is_part, ["nvidia-container-toolkit", "nvidia-docker2", "cuda-runtime-12-8", "libcublas-13-0"]))
    names = {
        "nvidia-utils-535-server": 535,
        "linux-modules-nvidia-580-server-open-generic": 580,
        "nvidia-firmware-580-server-580.126.20": 580,
        "nvidia-open": 0,
        "libnvidia-egl-wayland1": 0,
    }
    assert {name: named_branch(name) for name in names} == names


def test_versions_offered_by_a_source_are_parsed() -> None:
    files = """\
Package files:
 100 /var/lib/dpkg/status
     release a=now
 500 http://mirror.example/ubuntu noble/main amd64 Packages
     release v=24.04,o=Ubuntu,a=noble,n=noble,l=Ubuntu,c=main,b=amd64
     origin mirror.example
 500 http://mirror.example/ubuntu noble/restricted amd64 Packages
     release v=24.04,o=Ubuntu,a=noble,n=noble,l=Ubuntu,c=restricted,b=amd64
     origin mirror.example
 600 http://mirror.example/cuda  Packages
     release o=NVIDIA,l=NVIDIA CUDA,c=
     origin mirror.example
 500 file:/srv/debs ./ Packages
     release c=
Pinned packages:
     nvidia-open -> 615.71.09-2ubuntu1 with priority -1
"""
    packages = """\
nvidia-utils-580:
  Installed: 580.126.20-1ubuntu1
  Candidate: (none)
  Version table:
     580.178.04-1ubuntu1 -1
        600 http://mirror.example/cuda  Packages
     580.173.02-0ubuntu0.24.04.1 500
        500 http://mirror.example/ubuntu noble/main amd64 Packages
        500 http://mirror.example/ubuntu noble/restricted amd64 Packages
 *** 580.126.20-1ubuntu1 -1
        600 http://mirror.example/cuda  Packages
        100 /var/lib/dpkg/status
libnvidia-gpucomp-580:
  Installed: 580.126.20-1ubuntu1
  Candidate: 580.126.20-1ubuntu1
  Version table:
 *** 580.126.20-1ubuntu1 100
        100 /var/lib/dpkg/status
nvidia-open:
  Installed: (none)
  Candidate: 1
  Version table:
     580.159.04-1 500
        500 file:/srv/debs ./ Packages
"""
    assert apt.offers(files, packages, "ubuntu") == {
        "nvidia-utils-580": ("580.173.02-0ubuntu0.24.04.1",),
        "nvidia-open": ("580.159.04-1",),
    }
    assert apt.offers(files, packages, "nvidia") == {
        "nvidia-utils-580": ("580.178.04-1ubuntu1", "580.126.20-1ubuntu1"),
        "nvidia-open": ("580.159.04-1",),
    }


def test_newest_version_that_has_all_packages_is_chosen() -> None:
    offered = {
        "linux-headers-generic": ("6.8.0-90.91",),
        "nvidia-open-580": ("580.178.04-1", "580.159.04-1", "580.126.20-1"),
        "nvidia-fabricmanager": ("615.71.09-1", "580.159.04-1", "580.126.20-1"),
    }
    need = apt.PackageNeed(tuple(offered), "nvidia", 580, {}, offered)
    assert apt.newest_common(need) == "580.159.04"
    assert apt.newest_common(apt.PackageNeed((), "nvidia", 580, {})) == ""
    assert apt.newest_common(apt.PackageNeed(("nvidia-open-580",), "nvidia", 580, {})) == ""


def test_error_lines_of_apt_are_extracted() -> None:
    out = """\
(Reading database ... 100%
Setting up nvidia-dkms-580-open (580.178.04-1ubuntu1) ...
Error! Bad return status for module build on kernel: 6.8.0-94-generic (x86_64)
Consult /var/lib/dkms/nvidia/580.178.04/build/make.log for more information.
dpkg: error processing package nvidia-dkms-580-open (--configure):
 installed nvidia-dkms-580-open package post-installation script subprocess returned error exit status 10
Processing triggers for man-db ...

E: Sub-process /usr/bin/dpkg returned an error code (1)
"""
    assert apt.complaints(out).splitlines() == [
        "Error! Bad return status for module build on kernel: 6.8.0-94-generic (x86_64)",
        "Consult /var/lib/dkms/nvidia/580.178.04/build/make.log for more information.",
        "dpkg: error processing package nvidia-dkms-580-open (--configure):",
        "installed nvidia-dkms-580-open package post-installation script subprocess returned error exit status 10",
        "E: Sub-process /usr/bin/dpkg returned an error code (1)",
    ]
    assert apt.complaints("one\ntwo\n") == "one\ntwo"


def test_outdated_mirror_is_reported_with_a_specific_fix() -> None:
    # Message of apt 2.7 about an archive whose lists were older than its files
    said = "E: Failed to fetch http://example.org/linux-modules-nvidia.deb  404  Not Found [IP: 203.0.113.1 80]"
    assert "cluster_mirror" in apt.fix_with(apt.complaints(said))
    assert "run this again" in apt.fix_with("E: Sub-process /usr/bin/dpkg returned an error code (1)")
