"""An environment of conda packages as a node sees it, and what is refused of an archive."""

from __future__ import annotations

import json
import tarfile
from typing import TYPE_CHECKING

import pytest
from ansible.module_utils.muster_node.pytorch import conda
from ansible.module_utils.muster_node.pytorch.root import LookedAs

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    path = tmp_path / "envs/one"
    (path / "conda-meta").mkdir(parents=True)
    (path / "bin").mkdir()
    (path / "bin/python").symlink_to("/usr/bin/python3")
    record = {"name": "python", "version": "3.12.4", "build": "h1_0", "files": ["bin/python"]}
    (path / "conda-meta/python-3.12.4-h1_0.json").write_text(json.dumps(record))
    return path


def root(path: Path) -> conda.CondaRoot:
    return conda.CondaRoot(str(path), LookedAs("nobody", None))


def test_what_its_records_say_is_looked_at(environment: Path, tmp_path: Path) -> None:
    look = root(tmp_path).look(environment, "files")
    assert look == {"python": "3.12", "packages": {"python": "3.12.4_h1_0"}, "faults": [], "error": ""}
    (environment / "bin/python").unlink()
    assert root(tmp_path).look(environment, "files")["faults"] == ["python: bin/python is missing"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name": "x", "version": "1", "build": "0", "files": 3}'])
def test_a_record_that_makes_no_sense_is_a_fault(environment: Path, tmp_path: Path, text: str) -> None:
    (environment / "conda-meta/x-1-0.json").write_text(text)
    (fault,) = root(tmp_path).look(environment, "files")["faults"]
    assert fault.startswith("x-1-0.json cannot be read (")


def test_a_folder_without_records_is_none(tmp_path: Path) -> None:
    assert root(tmp_path).look(tmp_path, "files") == {"error": "there are no conda packages in it"}


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "bin/../../x"])
def test_nothing_gets_out_of_its_folder(name: str) -> None:
    with pytest.raises(tarfile.TarError, match="has no place in it"):
        conda._judge(tarfile.TarInfo(name))


def test_devices_and_rights_of_others_are_not_taken_over() -> None:
    device = tarfile.TarInfo("dev/x")
    device.type = tarfile.CHRTYPE
    with pytest.raises(tarfile.TarError):
        conda._judge(device)
    file = tarfile.TarInfo("bin/x")
    file.mode, file.uid = 0o6777, 1000
    conda._judge(file)
    assert (file.mode, file.uid) == (0o755, 0)
