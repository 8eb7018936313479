"""The build plan of nccl-tests, and missing inventory settings."""

from __future__ import annotations

import pytest

from muster.gpu_stack.nccl_tests import NcclTestsBuild, NcclTestsError, build_of, request_problems

DIGEST = "0123456789ABCDEF" * 4
NCCL = {"libnccl2": "2.29.7-1+cuda13.2"}


@pytest.mark.parametrize(
    ("toolkits", "default", "cuda"),
    [
        (["13.0"], "", "13.0"),
        (["12.8", "13.0", "13.2"], "", "13.2"),
        (["12.8", "13.0", "13.2"], "13.0", "13.0"),
        # The default has another major version than NCCL.
        (["12.8", "13.0"], "12.8", "13.0"),
    ],
)
def test_toolkit_matches_the_cuda_version_of_nccl(toolkits: list[str], default: str, cuda: str) -> None:
    wanted = NcclTestsBuild(cuda, f"2.19.6_cuda{cuda}_nccl2.29.7_01234567")
    assert build_of("2.19.6", DIGEST, toolkits, default, NCCL) == wanted


@pytest.mark.parametrize(
    ("toolkits", "packages", "why"),
    [
        (["12.8"], NCCL, r"is built for CUDA 13, but cuda_toolkit_versions \(12\.8\) contains no CUDA 13 toolkit"),
        ([], NCCL, r"cuda_toolkit_versions \(empty\) contains no CUDA 13 toolkit"),
        (["13.0"], {}, "set nccl_install to true"),
    ],
)
def test_build_without_nccl_or_toolkit_is_rejected(toolkits: list[str], packages: dict[str, str], why: str) -> None:
    with pytest.raises(NcclTestsError, match=why):
        build_of("2.19.6", DIGEST, toolkits, "", packages)


def test_empty_and_complete_requests_are_valid() -> None:
    assert not list(request_problems("", "", "", [], nccl=False))
    assert not list(request_problems("2.19.6", "x.tar.gz", DIGEST, ["13.0"], nccl=True))


def test_all_problems_are_reported_at_once() -> None:
    assert [what for what, _ in request_problems("2.19.x", "", "abc", [], nccl=False)] == [
        "nccl_tests_version is '2.19.x'",
        "nccl_tests_version is set, but nccl-tests require the NCCL system packages",
        "nccl_tests_version is set, but compiling nccl-tests requires a CUDA toolkit",
        "nccl_tests_version is set, but nccl_tests_source is not",
        "nccl_tests_sha256 is 'abc'",
    ]
