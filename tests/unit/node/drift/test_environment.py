"""Digests of the packages of an environment, and a node's record of the last installation."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from muster_node.drift import environment, record


@pytest.fixture
def link(tmp_path: Path) -> Path:
    site = tmp_path / "envs/one/lib/python3.11/site-packages"
    for name in (
        "torch/__init__.py",
        "torch/lib/libtorch.so",
        "torch-2.0.dist-info/RECORD",
        "six-1.0.dist-info/RECORD",
        "six.py",
    ):
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "current").symlink_to("envs/one")
    return tmp_path / "current"


def test_each_part_has_a_separate_digest(link: Path) -> None:
    before = environment.parts(str(link))
    assert before["name"] == "one"
    assert set(before["parts"]) == {"torch", "torch-2.0.dist-info", "six-1.0.dist-info", "six.py"}
    library = link / "lib/python3.11/site-packages/torch/lib/libtorch.so"
    seen = library.stat()
    library.write_text("torch/lib/libtorch.SO")  # the same size
    os.utime(library, ns=(seen.st_atime_ns, seen.st_mtime_ns + 1))
    after = environment.parts(str(link))
    assert {name for name, digest in after["parts"].items() if before["parts"][name] != digest} == {"torch"}
    changed = environment.changed_last(str(link), ["torch"])
    assert changed["torch"]["path"].endswith("torch/lib/libtorch.so")


def test_python_bytecode_does_not_count_as_a_change(link: Path) -> None:
    before = environment.parts(str(link))
    cache = link / "lib/python3.11/site-packages/torch/__pycache__"
    cache.mkdir()
    (cache / "x.pyc").write_text("")
    assert environment.parts(str(link)) == before


def test_missing_environment_yields_no_digests(tmp_path: Path) -> None:
    assert environment.parts(str(tmp_path / "current")) == {"name": "", "parts": {}}
    assert environment.changed_last(str(tmp_path / "current"), ["torch"]) == {}
    assert environment.condemn(str(tmp_path / "current"), ["torch"]) == []


def test_excessive_file_count_is_reported(link: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "MOST_FILES", 2)
    with pytest.raises(environment.UnreadableEnvironmentError, match="more than 2 files"):
        environment.parts(str(link))
    monkeypatch.setattr(environment, "SECONDS", -1.0)
    with pytest.raises(environment.UnreadableEnvironmentError, match="too many files to inspect"):
        environment.parts(str(link))


@pytest.mark.parametrize(
    ("changed", "removed"), [(["torch"], "torch-2.0"), (["six.py"], "six-1.0"), (["stray.py"], "six-1.0")]
)
def test_record_of_the_changed_package_is_removed(link: Path, changed: list[str], removed: str) -> None:
    (path,) = environment.condemn(str(link), changed)
    assert path.endswith(f"{removed}.dist-info/RECORD")
    assert not Path(path).exists()


def test_conda_record_of_the_changed_package_is_removed(link: Path) -> None:
    for name in ("greet-1.0-0.json", "python-3.11.2-0.json"):
        (link / "conda-meta").mkdir(exist_ok=True)
        (link / "conda-meta" / name).write_text("{}")
    (path,) = environment.condemn(str(link), ["somebodys.py"])
    assert path.endswith("/conda-meta/greet-1.0-0.json")
    (path,) = environment.condemn(str(link), ["python"])
    assert path.endswith("/conda-meta/python-3.11.2-0.json")
    assert (link / "lib/python3.11/site-packages/torch-2.0.dist-info/RECORD").exists()


def test_parts_are_grouped_by_environment() -> None:
    request = {"environment": "/e/current", "named": {"team": "/n/team/current", "bio": "/n/bio/current"}}
    groups = environment.by_environment(request, ["torch", "team/six.py", "team/torch", "gone/x"])
    assert [*groups] == [("", "/e/current", ["torch"]), ("team/", "/n/team/current", ["six.py", "torch"])]


def test_path_outside_the_environment_is_not_read(link: Path) -> None:
    assert "../.." not in environment.changed_last(str(link), ["../.."])


def now(**more: Any) -> dict[str, Any]:
    return {"kernel": "6.8", "booted": 1.0, "packages": {"chrony": "4.3"}, "unseen": {}, **more}


def test_record_is_written_only_if_it_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "PATH", str(tmp_path / "muster/installed.json"))
    if os.geteuid() != 0:
        pytest.skip("the record is read only if root owns the file")
    assert record.read()["why"] == "no installation has been recorded yet"
    assert record.keep(now(), "alice@laptop", "run1", [])
    first = record.read()["record"]
    assert not record.keep(now(booted=2.0), "bob@laptop", "run2", [])
    assert record.read()["record"] == first
    # Parts that could not be read stay unchanged.
    unseen = {name: value for name, value in now(kernel="6.9").items() if name != "packages"}
    assert record.keep({**unseen, "unseen": {"packages": "dpkg-query is not there"}}, "bob@laptop", "run3", [])
    assert (record.read()["record"]["kernel"], record.read()["record"]["packages"]) == ("6.9", {"chrony": "4.3"})
    # A repair records only the environment that it built, because no step restores the other parts.
    later = now(kernel="7.0", packages={"chrony": "4.4"}, environment={"name": "new", "parts": {}})
    assert record.keep(later, "bob@laptop", "run4", ["environment"])
    kept = record.read()["record"]
    assert (kept["kernel"], kept["packages"], kept["environment"]["name"]) == ("6.9", {"chrony": "4.3"}, "new")


def test_invalid_record_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "installed.json"
    monkeypatch.setattr(record, "PATH", str(path))
    for text in ("{", "[]", '{"schema": 99}'):
        path.write_text(text)
        answer = record.read()
        assert answer["record"] == {}
        assert answer["why"]
