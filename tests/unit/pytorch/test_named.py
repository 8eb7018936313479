"""Named environments: their paths, errors in the inventory, and their requirements (cases/environments,
cases/requirements).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cases import cases
from muster.pytorch import environments, lock, requirements
from muster.pytorch.choice import Ask, still_asked
from muster.pytorch.environments import EnvironmentPlace
from muster.pytorch.request import parse_range
from muster.pytorch.requirements import RequirementsError

OLD = {"old": {"prefix": "/opt/miniconda3/envs/train"}}
CLUSTER: dict[str, Any] = {
    "cluster_torchrun": "/opt/muster/pytorch/current/bin/torchrun",
    "cluster_environments_root": "/opt/muster/pytorch/named",
    "cluster_environments": {"vision": {"requirements": "vision.txt"}, "theirs": {"provided": True}, **OLD},
    "cluster_users_root": "/var/lib/muster/users/",
    "cluster_own_environments": {"mine": {"requirements": "mine.txt"}, "vision": {"requirements": "mine.txt"}},
}


@cases(__file__, "environments")
def test_invalid_environment_declarations_are_reported(case: dict[str, Any]) -> None:
    found = environments.problems(case["declared"], case.get("option", environments.OPTION), case.get("others", ()))
    assert [f"{what}. {fix}" for what, fix in found] == case["problems"]


def test_environment_paths_are_stable() -> None:
    assert environments.places(CLUSTER) == (
        EnvironmentPlace("default", "/opt/muster/pytorch/current"),
        EnvironmentPlace("vision", "/opt/muster/pytorch/named/vision/current"),
        EnvironmentPlace("theirs", "/opt/muster/pytorch/named/theirs/current"),
        EnvironmentPlace("old", "/opt/miniconda3/envs/train"),
    )
    assert environments.places(CLUSTER)[1].python == "/opt/muster/pytorch/named/vision/current/bin/python"


def test_torchrun_is_found_by_environment_name() -> None:
    own = {**CLUSTER, "cluster_torchrun": "/opt/site/bin/torchrun"}
    assert environments.torchrun(own, "") == environments.torchrun(own, "default") == "/opt/site/bin/torchrun"
    assert environments.torchrun(own, "vision") == "/opt/muster/pytorch/named/vision/current/bin/torchrun"
    assert environments.torchrun(own, "old") == "/opt/miniconda3/envs/train/bin/torchrun"
    assert environments.torchrun(own, "mine") == "/var/lib/muster/users/NAME/envs/mine/current/bin/torchrun"
    with pytest.raises(KeyError):
        environments.torchrun(own, "nlp")
    assert environments.unknown(own, "nlp").endswith("the environments default, vision, theirs, old, mine, vision.")


def test_own_environment_is_below_the_folder_of_the_login_user() -> None:
    path = environments.torchrun(CLUSTER, "mine")
    mine = "/var/lib/muster/users/anna/envs/mine/current/bin/torchrun"
    assert environments.of_login(path, CLUSTER["cluster_users_root"], "anna") == mine
    shared = environments.torchrun(CLUSTER, "vision")
    assert environments.of_login(shared, CLUSTER["cluster_users_root"], "anna") == shared


def test_errors_name_the_option_that_declares_the_environment() -> None:
    entry, said = {"requirements": "a.txt"}, "cluster_torch_version is too old; choose another pytorch_root"
    assert environments.in_its_words(said, "x", entry) == (
        "torch of x in cluster_environments is too old; choose another cluster_environments_root"
    )
    assert environments.in_its_words(said, "x", entry, own=True) == (
        "torch of x in cluster_own_environments is too old; choose another cluster_users_root"
    )


def test_environments_provided_by_the_site_are_not_built() -> None:
    assert environments.built(CLUSTER["cluster_environments"]) == ("vision",)


@cases(__file__, "requirements")
def test_requirements_files_are_parsed(case: dict[str, Any]) -> None:
    options = case.get("options", {})

    def read() -> tuple[list[str], requirements.RequestedPackages]:
        lines, included = requirements.parts_of(case["text"])
        return included, requirements.asked(lines, options.get("torch", ""), options.get("variant", ""))

    if "refusal" in case:
        with pytest.raises(RequirementsError) as refusal:
            read()
        assert str(refusal.value) == case["refusal"]
        return
    included, asked = read()
    assert included == case.get("included", [])
    assert [asked.torch_version, asked.variant] == case.get("torch", ["", ""])
    assert [str(parse_range(line, "3.12")) for line in asked.packages] == case["packages"]


PROJECT = {
    "project": {"dependencies": ["numpy>=2"], "optional-dependencies": {"Train_GPU": ["torch==2.12.0"], "docs": ["x"]}}
}


def test_pyproject_files_are_parsed() -> None:
    assert requirements.of_pyproject(PROJECT, []) == ["numpy>=2"]
    assert requirements.of_pyproject(PROJECT, ["train-gpu"]) == ["numpy>=2", "torch==2.12.0"]


@pytest.mark.parametrize(
    ("project", "extras", "refusal"),
    [
        ({}, [], "the table [project], which lists the dependencies, is missing"),
        (PROJECT, ["gpu"], "optional-dependencies has no gpu"),
        (
            {"project": {"dynamic": ["dependencies"]}},
            [],
            "the dependencies are dynamic, and Muster does not run project code to compute them",
        ),
    ],
)
def test_invalid_pyproject_files_are_rejected(project: dict[str, Any], extras: list[str], refusal: str) -> None:
    with pytest.raises(RequirementsError) as refused:
        requirements.of_pyproject(project, extras)
    assert str(refused.value) == refusal


def test_only_python_version_markers_are_evaluated() -> None:
    assert parse_range('numpy>=2; python_version < "3.11"', "3.12") is None
    windows = parse_range('pywin32==310; sys_platform == "win32"', "3.12")
    assert windows
    assert windows.met_by({})
    assert not windows.met_by({"pywin32": "1"})


def test_lock_stores_the_requested_version_ranges() -> None:
    ask = Ask("2.13.0", "cpu", 0, ("numpy >= 2, <3", 'x==1; sys_platform == "win32"'), ranges=True)
    request = ask.request("3.12")
    section = lock.make_section(request, "x86_64", [lock.Wheel("numpy", "2.3.5", "0" * 64, "numpy-2.3.5-any.whl")])
    assert section.asked == ("torch==2.13.0+cpu", "numpy>=2,<3", 'x==1; sys_platform == "win32"')
    assert lock.parse(lock.render([section])) == (section,)
    assert still_asked(section, [ask])
    assert not still_asked(section, [replace(ask, packages=("numpy",))])
