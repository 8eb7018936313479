"""Search for the newest complete checkpoint, in the formats commonly used with PyTorch."""

from __future__ import annotations

import json
import os
import struct
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from muster_node.launch import fit
from muster_node.launch.fit import complete, newest
from muster_node.tools.run import run

if TYPE_CHECKING:
    from pathlib import Path


def save(path: Path, at: float = 0.0) -> Path:
    """Write a zip file like torch.save."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", b"x" * 500)
    return set_time(path, at)


def set_time(path: Path, at: float) -> Path:
    os.utime(path, (at, at))
    return path


def safetensors(size: int) -> bytes:
    header = json.dumps({"__metadata__": {}, "w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    return struct.pack("<Q", len(header)) + header + b"\0" * size


def test_newest_complete_checkpoint_is_found(tmp_path: Path) -> None:
    work = tmp_path / "runs" / "first"  # other tests change the folder above tmp_path
    work.mkdir(parents=True)
    for step in (5, 10, 15):
        save(work / f"step-{step}.pt", step)
    cut = work / "step-15.pt"
    cut.write_bytes(cut.read_bytes()[:300])
    set_time(cut, 15)
    set_time(save(work / "step-20.pt.tmp"), 20)
    set_time(save(work / "other.pt"), 30)
    found = {"path": str(work / "step-10.pt"), "time": 10.0}
    assert newest("step-*", str(work)) == found
    assert newest(f"{work}/step-*", "/elsewhere") == found
    assert newest("**/first/step-*", str(tmp_path)) == found
    assert newest("nothing-*", str(work)) is None


def test_working_directory_name_is_not_used_as_a_pattern(tmp_path: Path) -> None:
    odd = tmp_path / "run[1]"
    odd.mkdir()
    save(odd / "a.pt", 3)
    assert newest("*.pt", str(odd)) == {"path": str(odd / "a.pt"), "time": 3.0}


@pytest.mark.parametrize(("size", "expected"), [(16, True), (15, False), (0, False)])
def test_safetensors_size_is_checked(tmp_path: Path, size: int, *, expected: bool) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors(size))
    assert complete(str(path)) is expected


@pytest.mark.parametrize("data", [b"", b"abc", struct.pack("<Q", 500) + b"{}", struct.pack("<Q", 2) + b"[]"])
def test_invalid_safetensors_is_incomplete(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    assert not complete(str(path))


def test_files_in_other_formats_count_as_complete_if_not_empty(tmp_path: Path) -> None:
    path = tmp_path / "state.bin"
    path.write_bytes(b"")
    assert not complete(str(path))
    path.write_bytes(b"x")
    assert complete(str(path))
    os.mkfifo(tmp_path / "pipe")
    assert not complete(str(tmp_path / "pipe"))
    assert not complete(str(tmp_path / "nothing"))


def test_distributed_checkpoint_requires_metadata(tmp_path: Path) -> None:
    folder = tmp_path / "step-5"
    folder.mkdir()
    save(folder / "__0_0.distcp", 5)
    assert not complete(str(folder))
    (folder / ".metadata").write_bytes(b"x")
    assert complete(str(folder))
    assert newest("step-*", str(tmp_path)) is not None


def test_checkpoint_folder_is_complete_if_all_its_files_are(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-5"
    folder.mkdir()
    assert not complete(str(folder))
    save(folder / "optimizer.pt", 5)
    (folder / "log.txt").write_bytes(b"")
    assert complete(str(folder))
    (folder / "model.safetensors").write_bytes(safetensors(3))
    assert not complete(str(folder))


def test_restart_facts_are_collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "a.pt", 3)
    monkeypatch.setattr("muster_node.launch.state.is_over", lambda launch_id: launch_id != "20260101-120000-abcd")
    request: dict[str, Any] = {
        "user": "root",
        "earlier": ["20260101-120000-abcd", "20260101-120000-abce"],
        "gpus": False,
        "checkpoints": "*.pt",
        "work_dir": str(tmp_path),
    }
    assert fit.fit(request) == {
        "running": ["20260101-120000-abcd"],
        "gpus": [],
        "gpu_error": "",
        "checkpoint": {"path": str(tmp_path / "a.pt"), "time": 3.0},
    }
    assert fit.fit({**request, "checkpoints": ""})["checkpoint"] is None
    assert fit.fit({**request, "user": "nobody-of-that-name"})["checkpoint"] is None


def test_gpu_memory_use_is_read_from_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\nprintf '0, 4, 0\\n1, 81000, [N/A]\\n'\n")
    smi.chmod(0o755)
    monkeypatch.setattr(fit, "run", lambda _name, *words, **how: run(str(smi), *words, **how))
    assert fit.gpu_use() == (
        [{"index": 0, "used_mib": 4, "uncorrected": 0}, {"index": 1, "used_mib": 81000, "uncorrected": 0}],
        "",
    )
    smi.write_text("#!/bin/sh\necho 'Unable to determine the device handle' >&2\nexit 15\n")
    gpus, error = fit.gpu_use()
    assert (gpus, "Unable to determine the device handle" in error) == ([], True)
