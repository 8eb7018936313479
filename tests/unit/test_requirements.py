"""The locks bring one Ansible to every Python that script/setup takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

REQUIREMENTS = Path(__file__).parents[2] / "requirements"


@pytest.mark.parametrize("lock", ["run", "dev"])
@pytest.mark.parametrize(("python", "ansible"), [("3.11", "12"), ("3.12", "14"), ("3.13", "14"), ("3.14", "14")])
def test_every_python_gets_one_ansible(lock: str, python: str, ansible: str) -> None:
    rows = re.findall(r"^(\S+==.*?) \\$", (REQUIREMENTS / f"{lock}.txt").read_text(), re.MULTILINE)
    about = {"python_version": python}
    found = [each for row in rows if (each := Requirement(row)).marker is None or each.marker.evaluate(about)]
    versions = {
        name: [str(each.specifier) for each in found if each.name == name] for name in ("ansible", "ansible-core")
    }
    assert [version.partition(".")[0] for version in versions["ansible"]] == [f"=={ansible}"]
    assert len(versions["ansible-core"]) == 1


@pytest.mark.parametrize("lock", ["run", "dev"])
def test_no_row_asks_for_the_full_version(lock: str) -> None:
    """Ubuntu 22.04's python3.11 is 3.11.0rc1, and its pip 22.0 finds that neither older than 3.12 nor 3.12 or newer.

    It then installs no Ansible at all, and succeeds.
    """
    assert "python_full_version" not in (REQUIREMENTS / f"{lock}.txt").read_text()
