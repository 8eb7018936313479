"""Validation of wheels."""

from __future__ import annotations

import pytest

from muster.pytorch import wheels
from muster.pytorch.wheels import WheelError

TORCH = "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"


@pytest.mark.parametrize(
    ("file", "found"),
    [
        (TORCH, ("torch", "2.13.0+cpu")),
        ("Typing_Extensions-4.15.0-py3-none-any.whl", ("typing-extensions", "4.15.0")),
        ("tiny-1.0-1build-py2.py3-none-any.whl", ("tiny", "1.0")),
    ],
)
def test_name_and_version_are_parsed_from_the_file_name(file: str, found: tuple[str, str]) -> None:
    assert wheels.named(file) == found


@pytest.mark.parametrize(
    "file",
    [
        "../tiny-1.0-py3-none-any.whl",
        "-r-1.0-py3-none-any.whl",
        ".whl",
        "tiny-1.0.tar.gz",
        "tiny-1.0-py3-none-any.whl\n",
        "a" * 300 + "-1.0-py3-none-any.whl",
        "t\u0131ny-1.0-py3-none-any.whl",
        "tiny-1.0-py3-none-any.whl/x",
    ],
)
def test_invalid_wheel_names_are_rejected(file: str) -> None:
    with pytest.raises(WheelError):
        wheels.named(file)


def test_metadata_must_match_the_file_name() -> None:
    wheels.judge(TORCH, "Torch", "2.13.0+cpu", ["sympy>=1.13", "ruff @ https://x.example/ruff.whl ; extra == 'dev'"])
    with pytest.raises(WheelError, match="has name 'tiny'"):
        wheels.judge(TORCH, "tiny", "2.13.0+cpu", [])
    with pytest.raises(WheelError, match=r"has name 'torch' and version '2\.12\.0'"):
        wheels.judge(TORCH, "torch", "2.12.0", [])


@pytest.mark.parametrize(
    "needed", ["evil @ https://x.example/e.tar.gz", "evil[a]@file:///tmp/e", " evil @ git+ssh://x/e"]
)
def test_requirements_by_url_are_rejected(needed: str) -> None:
    with pytest.raises(WheelError, match="installed only from an index or a folder"):
        wheels.judge(TORCH, "torch", "2.13.0+cpu", ["sympy", needed])
