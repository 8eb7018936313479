"""What nccl-tests are to be built with, and under which name: a build of anything else has another one. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .cuda_toolkits import newest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# One of the programs that a build makes; every version has it.
PROGRAM = "all_reduce_perf"


class NcclTestsError(ValueError):
    """What stands against the request, and what to write instead."""


@dataclass(frozen=True)
class NcclTestsBuild:
    """cuda: the toolkit's version. name: of the folder."""

    cuda: str
    name: str


def request_problems(
    version: str, source: str, sha256: str, toolkits: Sequence[str], *, nccl: bool
) -> Iterator[tuple[str, str]]:
    """Say what the inventory lacks, and what to write; nothing where no nccl-tests are requested."""
    if not version:
        return
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        yield f"nccl_tests_version is {version!r}", 'Write all three numbers, such as "2.19.6"'
    if not nccl:
        yield "nccl_tests_version is set, and nccl-tests need the NCCL of the system", "Set nccl_install to true"
    if not toolkits:
        yield (
            "nccl_tests_version is set, and nccl-tests are compiled, which needs a CUDA toolkit",
            'Set cuda_toolkit_versions, for example to ["13.0"]',
        )
    if not source:
        yield (
            "nccl_tests_version is set, and nccl_tests_source is not",
            "Name the archive of their source, as an address or as a file on the controller",
        )
    if not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        yield f"nccl_tests_sha256 is {sha256!r}", "Write the 64 digits that sha256sum prints of nccl_tests_source"


def build_of(
    version: str, sha256: str, toolkits: Sequence[str], default: str, packages: Mapping[str, str]
) -> NcclTestsBuild:
    """Choose the toolkit: the default, or else the newest, of the CUDA major version that NCCL is built for."""
    nccl = packages.get("libnccl2", "")
    built_for = re.search(r"\+cuda(\d+)", nccl)
    if not nccl or not built_for:
        raise NcclTestsError(
            "the stack gives it no NCCL of the system, which nccl-tests need: set nccl_install to true"
        )
    fitting = [toolkit for toolkit in toolkits if toolkit.partition(".")[0] == built_for[1]]
    if not fitting:
        raise NcclTestsError(
            f"its NCCL {nccl} is built for CUDA {built_for[1]}, and of cuda_toolkit_versions "
            f"({', '.join(toolkits) or 'empty'}) none is: add one of CUDA {built_for[1]}"
        )
    cuda = default if default in fitting else newest(fitting)
    return NcclTestsBuild(cuda, f"{version}_cuda{cuda}_nccl{nccl.partition('-')[0]}_{sha256[:8].lower()}")
