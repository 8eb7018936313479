"""The copy of a project for a launch."""

from __future__ import annotations

import errno
import hashlib
import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from muster_node.distribution import manifest, store
from muster_node.distribution.manifest import ManifestFile
from muster_node.launch import project
from muster_node.tools import files, trees
from muster_node.tools.as_user import as_user

NOBODY = pwd.getpwnam("nobody")
CONTENTS = {"train.py": b"import lib\n", "lib/deep/model.py": b"x = 1\n", "run.sh": b"#!/bin/sh\n"}
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can copy for another user")


@pytest.fixture
def spec(tmp_path: Path) -> dict[str, Any]:
    tmp_path.chmod(0o755)
    run_dir = tmp_path / "launches/ID"
    run_dir.mkdir(parents=True)
    listed = [
        ManifestFile(path, path == "run.sh", len(each), hashlib.sha256(each).hexdigest())
        for path, each in CONTENTS.items()
    ]
    text = manifest.render(listed)
    with store.opened(str(tmp_path / "store")) as there:
        store.keep_manifest(there, text)
        for file in listed:
            store.add_part(there, "0" * 64, file, 0, CONTENTS[file.path])
    digest = manifest.digest_of(text)
    return {"run_dir": str(run_dir), "project": {"store": str(tmp_path / "store"), "digest": digest}}


def corrupt_stored(spec: dict[str, Any], path: str, content: bytes) -> None:
    digest = hashlib.sha256(CONTENTS[path]).hexdigest()
    Path(spec["project"]["store"], "objects", digest).write_bytes(content)


@as_root
def test_training_user_can_read_but_not_change_the_copy(spec: dict[str, Any]) -> None:
    project.place(spec, NOBODY)
    copy = Path(spec["run_dir"], "project")
    assert project.digest_there(spec["run_dir"]) == spec["project"]["digest"]
    assert {path.stat().st_uid for path in [copy, *copy.rglob("*")]} == {0}
    assert {path.stat().st_mode & 0o777 for path in copy.rglob("*") if path.is_file()} == {0o444, 0o555}
    for parent in Path(spec["run_dir"]).parents:
        if str(parent).startswith("/tmp/") and parent.stat().st_uid == 0:
            parent.chmod(parent.stat().st_mode | 0o001)

    def tries() -> list[Any]:
        def done(work: Any) -> str:
            try:
                return str(work())
            except OSError as problem:
                return str(errno.errorcode[problem.errno or 0])

        return [
            (copy / "lib/deep/model.py").read_text(),
            done(lambda: (copy / "train.py").write_text("")),
            done((copy / "new").touch),
            done((copy / "lib/new").touch),
            done((copy / "train.py").unlink),
            done(lambda: copy.chmod(0o777)),
            done(lambda: copy.rename(f"{copy}2")),
        ]

    assert as_user(NOBODY, tries) == ["x = 1\n", *["EACCES"] * 4, "EPERM", "EACCES"]
    other = pwd.getpwnam("daemon")
    with pytest.raises(OSError, match="without a result"):
        as_user(other, lambda: [path.name for path in copy.iterdir()])


@as_root
def test_private_group_is_used_if_acls_are_not_supported(spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "setxattr", unsupported)
    monkeypatch.setattr(project, "is_alone", lambda _user: True)
    project.place(spec, NOBODY)
    seen = Path(spec["run_dir"], "project").stat()
    assert (seen.st_uid, seen.st_gid, seen.st_mode & 0o777) == (0, NOBODY.pw_gid, 0o750)
    monkeypatch.setattr(project, "is_alone", lambda _user: False)
    with pytest.raises(files.UnsafePathError, match="give nobody its own group"):
        project.let_in(0, "/x", NOBODY)


def test_group_with_several_users_is_not_private(monkeypatch: pytest.MonkeyPatch) -> None:
    def user(name: str, uid: int, gid: int) -> pwd.struct_passwd:
        return pwd.struct_passwd((name, "x", uid, gid, "", "/", "/bin/sh"))

    ada, bob = user("ada", 1001, 54321), user("bob", 1002, 54322)
    monkeypatch.setattr(pwd, "getpwall", lambda: [ada, bob])
    assert project.is_alone(ada)
    monkeypatch.setattr(pwd, "getpwall", lambda: [ada, user("bob", 1002, 54321)])
    assert not project.is_alone(ada)


@pytest.mark.parametrize("content", [b"x = 2\n", b"x = 1", b""])
def test_changed_project_content_is_reported(spec: dict[str, Any], content: bytes) -> None:
    corrupt_stored(spec, "lib/deep/model.py", content)
    with pytest.raises(files.UnsafePathError) as refused:
        project.place(spec, NOBODY)
    assert f"{refused.value.filename} {refused.value.strerror}" == (
        "lib/deep/model.py was changed on this node (sha256 mismatch)"
    )


def test_changed_copy_has_another_digest(spec: dict[str, Any]) -> None:
    project.place(spec, NOBODY)
    copy, digest = Path(spec["run_dir"], "project"), spec["project"]["digest"]
    assert project.digest_there(spec["run_dir"]) == digest
    (copy / "more").write_text("")
    assert project.digest_there(spec["run_dir"]) != digest
    (copy / "more").unlink()
    assert project.digest_there(spec["run_dir"]) == digest
    (copy / "train.py").chmod(0o555)
    assert project.digest_there(spec["run_dir"]) != digest
    (copy / "train.py").unlink()
    assert project.digest_there(spec["run_dir"]) != digest
    (copy / "train.py").symlink_to("/etc/passwd")
    assert project.digest_there(spec["run_dir"]).startswith("none: ")


@as_root
def test_project_copy_of_a_user_launch_is_read_only_and_removable(tmp_path: Path) -> None:
    """The test runs in a process of an unprivileged user."""
    home = tmp_path / "own"
    home.mkdir()
    for parent in [home, *home.parents]:
        if str(parent).startswith("/tmp/"):
            parent.chmod(0o755)
    os.chown(home, NOBODY.pw_uid, NOBODY.pw_gid)
    text = manifest.render([ManifestFile("a/b.py", False, 1, hashlib.sha256(b"1").hexdigest())])

    def work() -> Any:
        (home / "run").mkdir()
        with store.opened(str(home / "store")) as there:
            (file,) = store.keep_manifest(there, text)
            store.add_part(there, "0" * 64, file, 0, b"1")
        wanted = {"store": str(home / "store"), "digest": manifest.digest_of(text)}
        project.place({"run_dir": str(home / "run"), "project": wanted}, NOBODY)
        copy = home / "run/project"
        modes = [path.stat().st_mode & 0o777 for path in (copy, copy / "a", copy / "a/b.py")]
        same = project.digest_there(str(home / "run")) == manifest.digest_of(text)
        with files.folder(str(home)) as top:
            gone = trees.remove(top, "run", 1e18)
        return [modes, same, gone]

    assert as_user(NOBODY, work, writes=1_000_000) == [[0o500, 0o500, 0o400], True, True]
