"""Choose the CUDA toolkit for a build of nccl-tests, and a folder name that is unique for the inputs of the build.

Pure functions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .cuda_toolkits import newest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# A program of the build that every version has
PROGRAM = "all_reduce_perf"


class NcclTestsError(ValueError):
    """The requested build is not possible. The message contains the fix."""


@dataclass(frozen=True)
class NcclTestsBuild:
    """cuda: version of the toolkit. name: name of the folder."""

    cuda: str
    name: str


def request_problems(
    version: str, source: str, sha256: str, toolkits: Sequence[str], *, nccl: bool
) -> Iterator[tuple[str, str]]:
    """Yield (problem, fix) for errors in the inventory; nothing if nccl-tests are not requested."""
    if not version:
        return
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        yield f"nccl_tests_version is {version!r}", 'Use all three numbers of a version, for example "2.19.6"'
    if not nccl:
        yield "nccl_tests_version is set, but nccl-tests require the NCCL system packages", "Set nccl_install to true"
    if not toolkits:
        yield (
            "nccl_tests_version is set, but compiling nccl-tests requires a CUDA toolkit",
            'Set cuda_toolkit_versions, for example to ["13.0"]',
        )
    if not source:
        yield (
            "nccl_tests_version is set, but nccl_tests_source is not",
            "Set nccl_tests_source to the URL of the source archive or to a file on the controller",
        )
    if not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        yield f"nccl_tests_sha256 is {sha256!r}", "Use the 64 digits that sha256sum prints for nccl_tests_source"


def build_of(
    version: str, sha256: str, toolkits: Sequence[str], default: str, packages: Mapping[str, str]
) -> NcclTestsBuild:
    """Choose a toolkit whose CUDA major version is the one NCCL is built for: the default toolkit if possible,
    otherwise the newest.
    """
    nccl = packages.get("libnccl2", "")
    built_for = re.search(r"\+cuda(\d+)", nccl)
    if not nccl or not built_for:
        raise NcclTestsError(
            "nccl-tests require the NCCL system packages, which are not part of the GPU stack: set nccl_install to true"
        )
    fitting = [toolkit for toolkit in toolkits if toolkit.partition(".")[0] == built_for[1]]
    if not fitting:
        raise NcclTestsError(
            f"NCCL {nccl} is built for CUDA {built_for[1]}, but cuda_toolkit_versions "
            f"({', '.join(toolkits) or 'empty'}) contains no CUDA {built_for[1]} toolkit. Add one"
        )
    cuda = default if default in fitting else newest(fitting)
    return NcclTestsBuild(cuda, f"{version}_cuda{cuda}_nccl{nccl.partition('-')[0]}_{sha256[:8].lower()}")
