"""Reading the files of cluster_environments on the controller, and reporting their problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from muster.pytorch.requirements import RequirementsError
from muster_controller.pytorch.environments import lock_of, problems, read

if TYPE_CHECKING:
    from pathlib import Path

PROJECT = """
[project]
name = "nlp"
dependencies = ["numpy>=2"]
optional-dependencies = {train = ["torch==2.12.0+cu126"]}
"""


def test_included_files_are_relative_to_the_including_file(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "vision.txt").write_text("-r more/common.txt\npillow\n")
    (tmp_path / "more/common.txt").write_text("numpy>=2\n-r other.txt\n")
    (tmp_path / "more/other.txt").write_text("scipy\n")
    asked = read({"requirements": "vision.txt", "torch": "2.12.0"}, str(tmp_path))
    assert asked.packages == ("pillow", "numpy>=2", "scipy")
    assert (asked.torch_version, asked.variant) == ("2.12.0", "")


def test_pyproject_is_read_with_extras(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    asked = read({"pyproject": str(tmp_path / "pyproject.toml"), "extras": ["train"]}, "/nowhere")
    assert (asked.torch_version, asked.variant, asked.packages) == ("2.12.0", "cu126", ("numpy>=2",))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("-r vision.txt\n", "{path} includes itself"),
        ("-e .\n", "{path}: line 1: '-e .' is a folder or a URL"),
        ("-r gone.txt\n", "{folder}/gone.txt: cannot be read (No such file or directory)"),
        ("\xff\xfe", "{path}: cannot be read (not UTF-8 text)"),
    ],
)
def test_unusable_file_is_reported(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "vision.txt"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(RequirementsError) as refused:
        read({"requirements": "vision.txt"}, str(tmp_path))
    assert str(refused.value).startswith(said.format(path=path, folder=tmp_path))


def test_world_writable_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "vision.txt"
    path.write_text("numpy\n")
    path.chmod(0o666)
    with pytest.raises(RequirementsError, match="is writable by all users"):
        read({"requirements": "vision.txt"}, str(tmp_path))


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project")
    declared: dict[str, Any] = {
        "vision": {"requirements": "gone.txt"},
        "nlp": {"pyproject": "pyproject.toml"},
        "theirs": {"provided": True},
    }
    values = {"cluster_environments": declared, "cluster_own_environments": {"mine": {"requirements": "gone.txt"}}}
    *shared, own = problems(values, str(tmp_path))
    assert (own.option, own.what[:33]) == ("cluster_own_environments", "cluster_own_environments: 'mine':")
    found = [str(problem) for problem in shared]
    assert [one.partition(": ")[0] for one in found] == ["the cluster", "the cluster"]
    assert f"'vision': {tmp_path}/gone.txt: cannot be read (No such file or directory). Correct the file" in found[0]
    assert f"'nlp': {tmp_path}/pyproject.toml: invalid TOML" in found[1]
    (name,) = problems({"cluster_environments": {"Vision": {"requirements": "gone.txt"}}}, str(tmp_path))
    assert str(name).startswith("the cluster: cluster_environments: 'Vision' is not a valid name. Use lowercase")


def test_lock_of_an_own_environment_is_next_to_its_source() -> None:
    arguments = {"lock": "/lab/pytorch.lock.txt", "environments": {"mine": {"requirements": "/project/mine.txt"}}}
    assert lock_of(arguments, "mine", "/lab") == "/lab/mine.lock.txt"
    assert lock_of({**arguments, "users_root": "/var/lib/muster/users"}, "mine", "/lab") == "/project/mine.lock.txt"
    assert lock_of({**arguments, "lock": ""}, "mine", "/lab") == ""
