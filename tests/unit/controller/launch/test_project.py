"""A project on the controller: what of it is sent."""

from __future__ import annotations

import hashlib
import subprocess
from typing import TYPE_CHECKING

import pytest

from muster.launch.plan import PlanError
from muster_controller.launch import project as reading
from muster_controller.launch.project import Project, read_project
from muster_node.distribution import manifest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for path, text in {
        "train.py": "import lib\n",
        "lib/__init__.py": "",
        "lib/__pycache__/x.pyc": "no",
        "run.sh": "#!/bin/sh\n",
        "out/model.ckpt": "no",
        ".env": "HF_TOKEN=nutmeg",
        "notes.txt": "-----BEGIN OPENSSH PRIVATE KEY-----\n",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    (folder / "run.sh").chmod(0o755)
    return folder


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=folder, check=True)


def paths(found: Project) -> list[str]:
    return [file.path for file in found.files]


def refusal(source: Path, most_mb: int = 100) -> str:
    with pytest.raises(PlanError) as refused:
        read_project(str(source), most_mb)
    return str(refused.value)


def test_without_git_all_goes_but_what_is_left_out_by_name(source: Path) -> None:
    (source / ".musterignore").write_text("/out/\n")
    found = read_project(str(source), 100)
    assert paths(found) == [".musterignore", "lib/__init__.py", "run.sh", "train.py"]
    assert [file.path for file in found.files if file.executable] == ["run.sh"]
    assert manifest.parse(found.manifest) == list(found.files)
    assert found.in_plan["digest"] == hashlib.sha256(found.manifest).hexdigest()
    (said,) = found.warnings
    assert said.startswith("launch_project: .env, notes.txt are not copied")


def test_with_git_what_it_knows_and_what_is_new(source: Path) -> None:
    (source / ".gitignore").write_text("out\n")
    git(source, "init", "--quiet")
    git(source, "add", "train.py", "lib", ".gitignore")
    (source / "gone.py").write_text("")
    git(source, "add", "gone.py")
    (source / "gone.py").unlink()
    (source / "b\u00e4r new.py").write_text("")
    assert paths(read_project(str(source), 100)) == [
        ".gitignore",
        "b\u00e4r new.py",
        "lib/__init__.py",
        "run.sh",
        "train.py",
    ]
    # A folder of a tree is a project as well; and what all of it ignores is none.
    assert paths(read_project(str(source / "lib"), 100)) == ["__init__.py"]
    assert "has no file to send" in refusal(source / "out")


def test_a_tree_within_a_tree_goes_along(source: Path) -> None:
    git(source, "init", "--quiet")
    inner = source / "third_party/inner"
    inner.mkdir(parents=True)
    git(inner, "init", "--quiet")
    (inner / "part.py").write_text("")
    (inner / ".gitignore").write_text("*.so\n")
    (inner / "part.so").write_text("")
    found = paths(read_project(str(source), 100))
    assert "third_party/inner/part.py" in found
    assert "third_party/inner/part.so" not in found
    assert not [path for path in found if ".git/" in path]


def test_a_link_goes_as_the_file_that_it_leads_to_or_not_at_all(source: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("outside")
    (source / "again.py").symlink_to("train.py")
    (source / "sub").symlink_to("lib")
    (source / "outside").symlink_to(tmp_path / "secret")
    (source / "hidden").symlink_to(".env")
    (source / "nowhere").symlink_to("missing")
    for with_git in (False, True):
        if with_git:
            git(source, "init", "--quiet")
        found = read_project(str(source), 100)
        assert "again.py" in paths(found)
        assert found.warnings[-1].startswith("launch_project: hidden, nowhere, outside, sub are not copied")


def test_a_key_is_sent_where_its_owner_says_so(source: Path) -> None:
    (source / ".musterignore").write_text("!notes.txt\n!.env\n")
    found = read_project(str(source), 100)
    assert {".env", "notes.txt"} <= set(paths(found))
    assert found.warnings == []


def test_what_cannot_be_sent_is_refused_with_all_reasons(source: Path, tmp_path: Path) -> None:
    (source / "odd\nname").write_text("")
    (source / "data.bin").write_bytes(bytes(2_000_000))
    said = refusal(source, 1)
    assert "'odd\\nname': its name contains non-printable characters" in said
    assert "the maximum is 1 MB. Largest files: data.bin (2 MB)" in said
    assert "is not a folder on the controller" in refusal(tmp_path / "nowhere")
    assert "is not a folder on the controller" in refusal(source / "train.py")


def test_what_git_refuses_is_quoted(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(source, "init", "--quiet")
    (source / ".git/HEAD").write_text("spoilt")
    (source / ".git/config").write_text("[spoilt\n")
    assert "git reports: fatal: " in refusal(source)
    monkeypatch.setattr(reading, "GIT", ("a-git-that-is-not-there",))
    assert "is a git repository, but git is not installed" in refusal(source)


def test_a_part_of_a_file_is_read_for_the_nodes(source: Path) -> None:
    found = read_project(str(source), 100)
    (file,) = (file for file in found.files if file.path == "train.py")
    assert found.read(file, 7, 3) == b"lib"
    assert found.script_problem("train.py") == found.script_problem("/srv/x.py") == found.script_problem("") == ""
    assert "Did you mean train.py?" in found.script_problem("trane.py")
