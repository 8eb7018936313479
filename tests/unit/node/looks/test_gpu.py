"""Probe of GPUs with stubs of nvidia-smi: the probe has a time limit and never loads the driver."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from gpu_looks import QUESTIONS, text_of
from muster.gpu_info.facts import facts
from muster_node.looks import gpu as look_gpu
from muster_node.tools import run
from recordings import RECORDED

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def recorded_smi(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a stub of nvidia-smi that prints recorded output."""
    folder = tmp_path_factory.mktemp("recorded_smi")
    for question in QUESTIONS:
        (folder / question).write_text(text_of(RECORDED / "580-h100-healthy", question))
    return f"""#!/bin/sh
case "$1 $2" in
"-q -x") cat {folder}/query ;;
"topo -m") cat {folder}/topology ;;
"nvlink -s") cat {folder}/nvlink_status ;;
"nvlink -e") cat {folder}/nvlink_errors ;;
esac
"""


@pytest.fixture
def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that probes with a script in place of nvidia-smi. loaded: driver version that the kernel
    reports."""

    def look(program: str, seconds: float = 20.0, *, loaded: str = "580.178.04\n") -> dict[str, Any]:
        path = tmp_path / "nvidia-smi"
        path.write_text(program)
        path.chmod(0o755)

        def read(name: str) -> run.CommandResult:
            return run.CommandResult(loaded) if name == "/sys/module/nvidia/version" else run.read(name)

        monkeypatch.setitem(run.CLEAN, "PATH", f"{tmp_path}:{run.PATH}")
        monkeypatch.setattr(look_gpu, "read", read)
        return facts(look_gpu.look(seconds))

    return look


def test_outputs_of_four_queries_are_combined(probe: Any, recorded_smi: str) -> None:
    seen = probe(recorded_smi)
    assert seen["smi"]["status"] == "ok"
    assert [gpu["index"] for gpu in seen["gpus"]] == list(range(8))
    assert {len(gpu["nvlinks"]) for gpu in seen["gpus"]} == {18}
    assert {gpu["nvlinks"][17]["errors"]["replay errors"] for gpu in seen["gpus"]} == {0}
    assert seen["topology"]["between"]["GPU0"]["GPU7"] == "NV18"


def test_hanging_nvidia_smi_is_reported_in_time(probe: Any) -> None:
    began = time.monotonic()
    seen = probe("#!/bin/sh\nexec sleep 60\n", 2.5)
    assert time.monotonic() - began < 9, "four queries run in parallel"
    assert (seen["smi"]["status"], seen["gpus"]) == ("hangs", [])


def test_stderr_of_nvidia_smi_is_returned(probe: Any, recorded_smi: str) -> None:
    seen = probe(f"{recorded_smi}echo 'WARNING: infoROM is corrupted at gpu 0000:2A:00.0' >&2\n")
    assert seen["smi"]["notes"] == "WARNING: infoROM is corrupted at gpu 0000:2A:00.0"
    assert len(seen["gpus"]) == 8


def test_probe_does_not_load_the_driver(probe: Any, tmp_path: Path) -> None:
    seen = probe(f"#!/bin/sh\ntouch {tmp_path}/asked\n", loaded="")
    assert seen["smi"]["status"] == "not_run"
    assert not (tmp_path / "asked").exists()


def test_windows_nvidia_smi_is_run_under_wsl(
    probe: Any, recorded_smi: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WSL has no kernel module, so the query cannot load one."""
    program = tmp_path / "wsl/nvidia-smi"
    program.parent.mkdir()
    program.write_text(recorded_smi)
    program.chmod(0o755)
    monkeypatch.setattr(look_gpu, "WSL_SMI", str(program))
    seen = probe("#!/bin/sh\nexit 1\n", loaded="")
    assert seen["smi"]["status"] == "ok"
    assert len(seen["gpus"]) == 8


def test_exit_status_of_nvidia_smi_is_returned(probe: Any) -> None:
    seen = probe("#!/bin/sh\necho 'No answer' >&2; exit 15\n")
    assert (seen["smi"]["status"], seen["smi"]["code"], seen["smi"]["notes"]) == ("failed", 15, "No answer")


def test_pcie_slot_limits_are_read_from_the_bridge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sysfs nests device folders as on the bus, and links to all of them from one folder."""
    bridge, bus = tmp_path / "devices/pci0000:00/0000:00:01.0", tmp_path / "bus"
    gpu = bridge / "0000:18:00.0"
    gpu.mkdir(parents=True)
    bus.mkdir()
    (bus / gpu.name).symlink_to(gpu)
    (bridge / "max_link_width").write_text("4\n")
    (bridge / "max_link_speed").write_text("16.0 GT/s PCIe\n")
    (gpu / "max_link_width").write_text("16\n")
    (gpu / "current_link_width").write_text("4\n")
    monkeypatch.setattr(look_gpu, "BUS", str(bus))
    seen = look_gpu._on_the_bus(gpu.name, {"class": "0x030000"})
    assert {name: seen[name] for name in seen if "width" in name or name.startswith("slot")} == {
        "current_link_width": "4",
        "max_link_width": "16",
        "slot_max_link_width": "4",
        "slot_max_link_speed": "16.0 GT/s PCIe",
    }
