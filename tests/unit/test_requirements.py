"""The locks install the same version of Ansible for every Python that script/setup accepts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

REQUIREMENTS = Path(__file__).parents[2] / "requirements"


@pytest.mark.parametrize("lock", ["run", "dev"])
@pytest.mark.parametrize(
    ("python", "core"), [("3.11", "2.19"), *((python, "2.21") for python in ("3.12", "3.13", "3.14"))]
)
def test_every_supported_python_installs_the_same_ansible(lock: str, python: str, core: str) -> None:
    rows = re.findall(r"^(\S+==.*?) \\$", (REQUIREMENTS / f"{lock}.txt").read_text(), re.MULTILINE)
    about = {"python_version": python}
    found = [each for row in rows if (each := Requirement(row)).marker is None or each.marker.evaluate(about)]
    (version,) = [str(each.specifier) for each in found if each.name == "ansible-core"]
    assert version.startswith(f"=={core}.")
    assert "ansible" not in {each.name for each in found}, "its collections are 470 MB and unused"


@pytest.mark.parametrize("lock", ["run", "dev"])
def test_locks_do_not_use_python_full_version(lock: str) -> None:
    """Ubuntu 22.04's python3.11 is 3.11.0rc1, which pip 22.0 treats neither as older than 3.12 nor as 3.12 or newer.

    pip would then install no Ansible, and succeed.
    """
    assert "python_full_version" not in (REQUIREMENTS / f"{lock}.txt").read_text()
