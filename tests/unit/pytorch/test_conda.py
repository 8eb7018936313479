"""Conda environments: reading an environment.yml, and the lock of packages with hashes."""

from __future__ import annotations

from typing import Any

import pytest

from muster.pytorch import conda
from muster.pytorch.conda import CondaError, CondaPackage, CondaSection, CondaSpecs
from muster.pytorch.lock import LockError
from muster.pytorch.plan import Environment, shortcomings
from muster.pytorch.request import is_environment

YML = {"name": "bio", "channels": ["conda-forge", "nodefaults"], "dependencies": ["python=3.12", "numpy >=2,<3"]}
ASKED = CondaSpecs(("conda-forge",), ("python=3.12", "numpy >=2,<3"))
HASH = "0" * 64
AT = "https://conda.example.org/conda-forge"


def section(platform: str = "linux-64", *more: str, asked: CondaSpecs = ASKED) -> CondaSection:
    names = [f"{platform}/python-3.12.4-h955ad1f_1.conda", "noarch/six-1.17.0-pyhd8ed1ab_0.tar.bz2", *more]
    return conda.make_section(platform, asked, [CondaPackage(f"{AT}/{name}", HASH) for name in names])


def test_environment_yml_is_read() -> None:
    assert conda.asked_of(YML) == ASKED
    assert conda.asked_of(YML, "12.8").lines == ("channel conda-forge", "numpy >=2,<3", "python=3.12", "__cuda=12.8")
    mirror = {**YML, "channels": ["https://mirror.example.org/conda-forge", "file:///srv/channel"]}
    assert conda.asked_of(mirror).channels == ("https://mirror.example.org/conda-forge", "file:///srv/channel")


@pytest.mark.parametrize(
    ("content", "refusal"),
    [
        ([], "not a mapping with channels and dependencies"),
        ({**YML, "channels": []}, "no channels are listed, and Muster uses no default channel"),
        ({**YML, "dependencies": None}, "no dependencies are listed"),
        (
            {**YML, "dependencies": ["python", {"conda": ["torch"]}]},
            "dependency \"{'conda': ['torch']}\" is not a valid conda spec",
        ),
        (
            {**YML, "channels": ["https://me:secret@h/c"]},
            "channel 'https://me:secret@h/c' is neither a name nor a URL without a password",
        ),
        ({**YML, "channels": ["--x"]}, "channel '--x' is neither a name nor a URL without a password"),
        ({**YML, "dependencies": ["a\nb"]}, "dependency 'a\\nb' is not a valid conda spec"),
        ({**YML, "dependencies": [3]}, "dependency '3' is not a valid conda spec"),
    ],
)
def test_invalid_environment_yml_is_rejected(content: Any, refusal: str) -> None:
    with pytest.raises(CondaError) as refused:
        conda.asked_of(content)
    assert str(refused.value) == refusal


def test_refused_lines_of_an_article_are_shown_with_their_replacements() -> None:
    """An environment.yml as articles show it, with each kind of line that Muster refuses."""
    pip = ["torch==2.1.0+cu121", "torchmetrics[image]>=1.2,<2", "opencv-python", "PyYAML  # configuration"]
    pip += ["--extra-index-url https://download.pytorch.org/whl/cu121", "-e ."]
    given = {
        "name": "ddp",
        "channels": ["pytorch", "nvidia", "conda-forge", "defaults"],
        "dependencies": ["python=3.10", "numpy", "pip", {"pip": pip}],
        "variables": {"NCCL_DEBUG": "INFO"},
    }
    with pytest.raises(CondaError) as refused:
        conda.asked_of(given)
    channel, pip_replaced, pip_refused, variables = str(refused.value).split("; ")
    assert channel.startswith(
        "channel defaults means Anaconda's repository, which has terms of its own: replace it with "
    )
    assert pip_replaced.startswith(
        "packages of pip are not installed into conda environments: replace the section pip with "
    )
    assert pip_replaced.endswith('"pytorch ==2.1.0", "torchmetrics>=1.2,<2", "opencv", "pyyaml"')
    assert pip_refused.startswith(
        "pip: '--extra-index-url https://download.pytorch.org/whl/cu121', '-e .' cannot be a "
    )
    assert variables == "variables are not set in an environment: move them to launch_env"
    replaced = {**given, "channels": ["pytorch", "nvidia", "conda-forge"], "variables": None}
    replaced["dependencies"] = ["python=3.10", "pip", "pytorch ==2.1.0", "torchmetrics>=1.2,<2", "opencv", "pyyaml"]
    assert conda.asked_of(replaced).specs[2:] == ("pytorch ==2.1.0", "torchmetrics>=1.2,<2", "opencv", "pyyaml")


def test_rendered_conda_lock_can_be_parsed() -> None:
    sections = (section(), section("linux-aarch64"))
    text = conda.render(sections)
    assert set(conda.parse(text)) == set(sections)
    assert conda.render(conda.parse(text)) == text
    assert conda.parse("") == ()
    assert conda.section_of(section().as_dict()) == section()


@pytest.mark.parametrize(
    ("old", "new", "refusal"),
    [
        ("six-1.17.0", "six-1.16.0", "the environment for linux-64 was modified"),
        ("sha256:000", "md5:000", "^line '"),
        ("# asked for", "# wanted", "starts with '# environment: linux-64' is not a conda"),
        ("/six-1.17.0-pyhd8ed1ab_0.tar.bz2", "/six.zip", "is not the URL of a conda package"),
        ("# The conda", "<<<<<<< HEAD\n# The conda", "line '<<<<<<< HEAD' is outside of any environment"),
    ],
)
def test_edited_conda_lock_is_rejected(old: str, new: str, refusal: str) -> None:
    text = conda.render([section()])
    with pytest.raises(LockError, match=refusal):
        conda.parse(text.replace(old, new))


def test_wheel_lock_is_rejected_as_a_conda_lock() -> None:
    with pytest.raises(LockError, match="is not a conda environment"):
        conda.parse("# environment: Python 3.12, x86_64, cpu\n# asked for: torch==2.13.0\n# digest: 0000000000000000\n")


def test_locking_a_new_request_replaces_the_old_one() -> None:
    other = conda.asked_of({**YML, "dependencies": ["python=3.12"]})
    new = section(asked=other)
    assert conda.section_for([section()], ASKED, "linux-64") == section()
    assert conda.section_for([section()], other, "linux-64") is None
    assert conda.with_section([section(), section("linux-aarch64")], new, other) == (new,)
    both = conda.with_section([section("linux-aarch64")], section(), ASKED)
    assert {one.platform for one in both} == {"linux-64", "linux-aarch64"}


def test_changes_to_a_conda_lock_are_described() -> None:
    newer = conda.make_section("linux-64", ASKED, [CondaPackage(f"{AT}/linux-64/python-3.12.5-h1_0.conda", HASH)])
    assert conda.changes([], section()) == ["linux-64, conda: 2 packages"]
    assert conda.changes([section()], newer) == [
        "linux-64, conda: python 3.12.4_h955ad1f_1 -> 3.12.5_h1_0",
        "linux-64, conda: six 1.17.0_pyhd8ed1ab_0 removed",
    ]


def test_conda_environment_name_depends_on_the_lock_and_packages_are_compared() -> None:
    request = section().request()
    assert request.name.startswith("3.12.4-conda-py3.12-")
    assert is_environment(request.name)
    assert request.name != section("linux-64", "noarch/attrs-1-0.conda").request().name
    there = {"python": "3.12.4_h955ad1f_1", "six": "1.17.0_pyhd8ed1ab_0"}
    assert shortcomings(request, Environment("3.12", there)) == []
    (lacks,) = shortcomings(request, Environment("3.12", {**there, "six": "1.17.0_0"}))
    assert lacks == "six==1.17.0_pyhd8ed1ab_0 is requested, but 1.17.0_0 is installed"


def test_conda_environment_without_python_is_rejected() -> None:
    with pytest.raises(LockError, match="package python is missing"):
        conda.make_section("linux-64", ASKED, []).request()
