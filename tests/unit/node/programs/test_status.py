"""Status facts of this machine, with a stub of nvidia-smi for two GPUs."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

from muster_node.launch import computing
from muster_node.programs import status
from muster_node.tools.run import CommandResult

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

GPUS = "0, GPU-aa, NVIDIA H100, 4, 0\n1, GPU-bb, NVIDIA H100, 40960, 97\n"


def stub_smi(monkeypatch: pytest.MonkeyPatch, gpus: CommandResult, apps: CommandResult) -> None:
    answers = {"--query-gpu=index,uuid,name,memory.used,utilization.gpu": gpus}
    monkeypatch.setattr(computing, "run", lambda _program, question, *_words, **_more: answers.get(question, apps))
    monkeypatch.setattr(os, "listdir", lambda _path: ["nvidia0", "nvidia1", "nvidiactl", "null"])


def test_gpus_are_reported_with_their_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    stub_smi(monkeypatch, CommandResult(GPUS, code=0), CommandResult(f"GPU-bb, {os.getpid()}\nGPU-zz, 1\n", code=0))
    seen = status.gpu_facts(2.0)
    assert [(one["index"], one["used"], one["busy"]) for one in seen["gpus"]] == [("0", "4", "0"), ("1", "40960", "97")]
    assert seen["devices"] == 2
    assert list(seen["computing"]) == ["gpu-1"]
    assert [one["pid"] for one in seen["computing"]["gpu-1"]] == [os.getpid()]
    assert seen["why"] == ""


def test_hanging_nvidia_smi_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    late = CommandResult("", "nvidia-smi did not answer within 2 s", late=True)
    stub_smi(monkeypatch, late, late)
    seen = status.gpu_facts(2.0)
    assert (seen["gpus"], seen["why"]) == ([], "nvidia-smi did not answer within 2 s")


def test_status_of_this_machine_is_complete(tmp_path: Path) -> None:
    torch = tmp_path / "lib/python3.11/site-packages/torch"
    torch.mkdir(parents=True)
    (torch / "version.py").write_text("__version__ = '2.13.0+cu130'\ncuda: str | None = '13.0'\n")
    seen = status.look({"environment": str(tmp_path), "run_root": str(tmp_path), "seconds": 1.0})
    assert seen["torch"] == {"version": "2.13.0+cu130", "cuda": "13.0", "why": ""}
    assert seen["kernel"] == platform.release()
    assert seen["disk"]["path"] == str(tmp_path)
    assert seen["who"]["uid"] == os.getuid()


def test_missing_environment_is_reported(tmp_path: Path) -> None:
    assert status.torch_facts(str(tmp_path))["why"] == f"PyTorch is not installed in {tmp_path}"
