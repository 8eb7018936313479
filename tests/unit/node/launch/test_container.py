"""What root's podman is told for a launch in an image; and what it is asked on the way there."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from muster_node.launch import container, images, state
from muster_node.tools.run import Answer

if TYPE_CHECKING:
    from pathlib import Path

LAUNCH_ID = "20260101-120000-abcd"
USER: Any = SimpleNamespace(pw_name="muster", pw_uid=1001, pw_gid=1002)
IMAGE: dict[str, Any] = {"id": "a" * 64, "chdir": "", "folders": ["/data"], "gpus": False}


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(state, "STATE_ROOT", str(tmp_path))
    monkeypatch.setattr(os, "getgrouplist", lambda _name, gid: [gid, 44, 109])
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(container, "RDMA", str(tmp_path / "infiniband"))
    (tmp_path / LAUNCH_ID).mkdir()
    return {
        "launch_id": LAUNCH_ID,
        "run_dir": "/var/lib/muster/launches/X",
        "work_dir": "/var/lib/muster/work/X",
        "cache_root": "/var/lib/muster/cache/muster",
        "env": {"HF_TOKEN": "nutmeg"},
        "image": dict(IMAGE),
    }


def test_the_command(spec: dict[str, Any], tmp_path: Path) -> None:
    argv = container.command(spec, USER, "-I", "-S", "node.py", "run", "state")
    assert argv[:4] == ["/usr/bin/podman", "--runtime=crun", f"--hooks-dir={tmp_path}/{LAUNCH_ID}/podman", "run"]
    assert argv[-7:] == ["--entrypoint=python3", "a" * 64, "-I", "-S", "node.py", "run", "state"]
    for word in ("--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", "--pull=never"):
        assert word in argv
    assert [word for word in argv if word.startswith(("--user=", "--group-add"))] == [
        "--user=1001:1002",
        "--group-add=44",
        "--group-add=109",
    ]
    mounts = [word.partition("src=")[2].partition(",")[0] for word in argv if word.startswith("--mount")]
    state_dir = f"{tmp_path}/{LAUNCH_ID}"
    assert mounts == [state_dir, spec["run_dir"], spec["work_dir"], spec["cache_root"], "/data", "/sys/fs/cgroup"]
    assert "--workdir=/var/lib/muster/work/X" in argv
    assert not any("nutmeg" in word or word.startswith("--device") for word in argv)


def test_a_working_directory_within_a_folder_is_not_mounted_by_its_own_name(spec: dict[str, Any]) -> None:
    spec["work_dir"], spec["image"]["chdir"] = "", "/data/somebodys/work"
    argv = container.command(spec, USER)
    assert "--workdir=/data/somebodys/work" in argv
    assert not any("somebodys" in word for word in argv if word.startswith("--mount"))


def test_gpus_and_rdma(spec: dict[str, Any], tmp_path: Path) -> None:
    spec["image"]["gpus"] = True
    (tmp_path / "infiniband").mkdir()
    devices = [word for word in container.command(spec, USER) if word.startswith("--device")]
    assert devices == ["--device=nvidia.com/gpu=all", f"--device={tmp_path}/infiniband"]


def test_the_hook_takes_the_namespace_of_processes_out_and_nothing_else(spec: dict[str, Any], tmp_path: Path) -> None:
    container.command(spec, USER)
    hook = json.loads((tmp_path / LAUNCH_ID / "podman/pids.json").read_text())
    assert hook["stages"] == ["precreate"]
    given: dict[str, Any] = {
        "root": {"path": "/x"},
        "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}], "resources": {}},
    }
    argv = [sys.executable, *hook["hook"]["args"][1:]]
    said = subprocess.run(argv, input=json.dumps(given), capture_output=True, text=True, check=True, timeout=60)
    given["linux"]["namespaces"] = [{"type": "mount"}]
    assert json.loads(said.stdout) == given


def test_what_is_left_of_launches_that_are_over_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    running = "20260101-130000-abcd"
    asked: list[tuple[str, ...]] = []

    def run(*argv: str, **_how: Any) -> Answer:
        asked.append(argv)
        names = f"muster-launch-{LAUNCH_ID}\nmuster-launch-{running}\nmuster-launch-../x\nothers\n"
        return Answer(names if argv[1] == "ps" else "", code=0)

    monkeypatch.setattr(container, "run", run)
    monkeypatch.setattr(state, "is_over", lambda launch_id: launch_id == LAUNCH_ID)
    assert container.remove_old() == [f"muster-launch-{LAUNCH_ID}"]
    assert asked[1] == ("podman", "rm", "--force", "--ignore", f"muster-launch-{LAUNCH_ID}")


def test_a_specification_of_gpus_is_found_in_both_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "CDI", (str(tmp_path / "etc"), str(tmp_path / "run")))
    assert not images.describes_gpus()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/other.yaml").write_text("kind: vendor.com/net\n")
    assert not images.describes_gpus()
    (tmp_path / "run/nvidia.yaml").write_text("cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n")
    assert images.describes_gpus()


def test_versions_are_what_the_image_says_behind_anything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    said = ['banner\n{"python": [3, 12, 3], "torch": "2.13.0", "nccl": ""}\n']
    monkeypatch.setattr(images, "run", lambda *_argv, **_how: Answer(said[0], code=0))
    monkeypatch.setattr(pwd, "getpwnam", lambda _name: USER)
    monkeypatch.setattr(container, "as_user", lambda _user: [])
    request = {"user": "muster", "name": "muster-look-x", "id": "a" * 64}
    assert images.versions(request) == {"python": [3, 12, 3], "torch": "2.13.0", "nccl": "", "error": ""}
    said[0] = "no JSON\n"
    assert images.versions(request)["error"] == "its Python says 'no JSON\\n'"


def test_the_program_for_versions_runs_anywhere() -> None:
    argv = [sys.executable, "-c", images.VERSIONS]
    said = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(said.stdout)["python"] == list(sys.version_info[:3])
