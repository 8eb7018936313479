"""Classify packages: parts of the NVIDIA driver, and packages that must have the same version as the driver."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PINNING = "nvidia-driver-pinning"
# Packages that an installation or removal may also remove. Not the container toolkit, which has separate versions, and
# not the libraries of CUDA.
_FAMILY = re.compile(
    r"(lib)?nvidia-(?!container|cuda|cudnn|docker|nsight|ml-py)|libcuda(1|debugger1)\b|libnvsdm|libnvoptix1|libnvcuvid1|"
    r"libxnvctrl|cuda-drivers|xserver-xorg-video-nvidia|firmware-nvidia|libgl\w*-nvidia|libegl\w*-nvidia|glx-.*nvidia|"
    r"nvlink5|linux-(modules|objects|signatures)-nvidia-|screen-resolution-extra$"
)
# Packages whose version may differ from the driver's even in NVIDIA's repository: CUDA does not use them.
_LOOSE = re.compile(
    r"nvidia-(settings|prime|xconfig|driver-pinning|support|alternative|installer-cleanup|kernel-support|legacy-check|"
    r"egl-common|vulkan-common|gds|fs)|libxnvctrl|libnvidia-egl|nvlink5|nvlsm$|linux-|glx-"
)
# Distributions package these two separately, with separate versions.
_LOOSE_OF_DISTRIBUTIONS = re.compile(r"nvidia-(modprobe|persistenced)$")
_BRANCH = re.compile(r"-(\d{3})(?=-|$)")


def upstream(version: str) -> str:
    """Return the NVIDIA version in a package version, such as 580.159.04 in 580.159.04-1ubuntu1; ""
    for other versions.
    """
    found = re.match(r"(?:\d+:)?(\d{3}\.\d+(?:\.\d+)?)(?=[-+~]|$)", version)
    return found[1] if found else ""


def branch_of(version: str) -> int:
    """Return the branch of a driver version; 0 if there is none."""
    first = version.partition(".")[0]
    return int(first) if first.isdigit() else 0


def is_part(name: str) -> bool:
    """Return whether a package belongs to the driver."""
    return bool(_FAMILY.match(name.partition(":")[0]))


def is_versioned(name: str, source: str) -> bool:
    """Return whether a package has the same version as the driver because it comes from the same build."""
    plain = name.partition(":")[0]
    if not is_part(plain) or _LOOSE.match(plain):
        return False
    return source == "nvidia" or not _LOOSE_OF_DISTRIBUTIONS.match(plain)


def keeps_step(name: str, version: str, source: str) -> bool:
    """Return whether an installed package must have the same version as the driver."""
    return is_versioned(name, source) and bool(upstream(version))


def named_branch(name: str) -> int:
    """Return the branch in a package name such as nvidia-utils-535-server; 0 if there is none."""
    found = _BRANCH.search(name)
    return int(found[1]) if found else 0


def user_space(name: str) -> bool:
    """Return whether a package contains the library that every CUDA program loads.

    Its version is taken as the version of the driver.
    """
    return bool(re.fullmatch(r"libnvidia-compute(-\d+(-server)?)?|libcuda1", name))


def library_version(packages: Mapping[str, str]) -> str:
    """Return the driver version of the library that programs use; "" if there is none. packages: versions by name."""
    return next((upstream(version) for name, version in packages.items() if user_space(name) and upstream(version)), "")


def is_obsolete(name: str, branch: int) -> bool:
    """Return whether the name of a package shows that it belongs to another branch.

    Only one pinning package can be installed.
    """
    return name.startswith(PINNING) or (is_part(name) and named_branch(name) not in (0, branch))
