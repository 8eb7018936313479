"""Selection of the project files that are copied to the nodes."""

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


def test_all_files_except_ignored_ones_are_selected_without_git(source: Path) -> None:
    (source / ".musterignore").write_text("/out/\n")
    found = read_project(str(source), 100)
    assert paths(found) == [".musterignore", "lib/__init__.py", "run.sh", "train.py"]
    assert [file.path for file in found.files if file.executable] == ["run.sh"]
    assert manifest.parse(found.manifest) == list(found.files)
    assert found.in_plan["digest"] == hashlib.sha256(found.manifest).hexdigest()
    (said,) = found.warnings
    assert said.startswith("launch_project: .env, notes.txt are not copied")


def test_tracked_and_untracked_files_are_selected_with_git(source: Path) -> None:
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
    # A folder of a work tree can be a project; an ignored folder cannot.
    assert paths(read_project(str(source / "lib"), 100)) == ["__init__.py"]
    assert "has no file to send" in refusal(source / "out")


def test_nested_git_repository_is_included(source: Path) -> None:
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


def test_links_are_copied_as_files_or_skipped(source: Path, tmp_path: Path) -> None:
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


def test_secret_files_are_copied_if_listed_explicitly(source: Path) -> None:
    (source / ".musterignore").write_text("!notes.txt\n!.env\n")
    found = read_project(str(source), 100)
    assert {".env", "notes.txt"} <= set(paths(found))
    assert found.warnings == []


def test_unusable_project_is_rejected_with_all_reasons(source: Path, tmp_path: Path) -> None:
    (source / "odd\nname").write_text("")
    (source / "data.bin").write_bytes(bytes(2_000_000))
    said = refusal(source, 1)
    assert "'odd\\nname': the name contains non-printable characters" in said
    assert "the maximum is 1 MB. Largest files: data.bin (2 MB)" in said
    assert "is not a folder on the controller" in refusal(tmp_path / "nowhere")
    assert "is not a folder on the controller" in refusal(source / "train.py")


def test_git_errors_are_quoted(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(source, "init", "--quiet")
    (source / ".git/HEAD").write_text("corrupt")
    (source / ".git/config").write_text("[corrupt\n")
    assert "git reports: fatal: " in refusal(source)
    monkeypatch.setattr(reading, "GIT", ("git-not-installed",))
    assert "is a git repository, but git is not installed" in refusal(source)


def test_files_are_read_in_chunks_and_the_script_is_found(source: Path) -> None:
    found = read_project(str(source), 100)
    (file,) = (file for file in found.files if file.path == "train.py")
    assert found.read(file, 7, 3) == b"lib"
    assert found.script_problem("train.py") == found.script_problem("/srv/x.py") == found.script_problem("") == ""
    assert "Did you mean train.py?" in found.script_problem("trane.py")
