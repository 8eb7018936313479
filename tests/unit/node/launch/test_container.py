"""podman commands for launches in an image, and checks of images."""

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
from muster_node.tools.run import CommandResult

if TYPE_CHECKING:
    from collections.abc import Iterator
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
        "cache_root": "/var/lib/muster/launches/.muster-cache/muster",
        "env": {"HF_TOKEN": "nutmeg"},
        "image": dict(IMAGE),
    }


def test_podman_command_restricts_the_container(spec: dict[str, Any], tmp_path: Path) -> None:
    argv = container.command(spec, USER, "-I", "-S", "node.py", "run", "state")
    assert argv[:4] == ["/usr/bin/podman", "--runtime=crun", f"--hooks-dir={tmp_path}/{LAUNCH_ID}/podman", "run"]
    assert argv[-7:] == ["--entrypoint=python3", "a" * 64, "-I", "-S", "node.py", "run", "state"]
    closed = ("--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", "--pull=never", "--no-healthcheck")
    for word in (*closed, "--user=1001:1002"):
        assert word in argv
    mounts = [word.partition("src=")[2].partition(",")[0] for word in argv if word.startswith("--mount")]
    state_dir = f"{tmp_path}/{LAUNCH_ID}"
    assert mounts == [state_dir, spec["run_dir"], spec["work_dir"], spec["cache_root"], "/data", "/sys/fs/cgroup"]
    assert "--workdir=/var/lib/muster/work/X" in argv
    assert not any("nutmeg" in word or word.startswith("--device") for word in argv)


def test_working_directory_within_a_mount_is_not_mounted_again(spec: dict[str, Any]) -> None:
    spec["work_dir"], spec["image"]["chdir"] = "", "/data/somebodys/work"
    argv = container.command(spec, USER)
    assert "--workdir=/data/somebodys/work" in argv
    assert not any("somebodys" in word for word in argv if word.startswith("--mount"))


def test_gpu_and_rdma_devices_are_passed_to_the_container(spec: dict[str, Any], tmp_path: Path) -> None:
    spec["image"]["gpus"] = True
    (tmp_path / "infiniband").mkdir()
    devices = [word for word in container.command(spec, USER) if word.startswith("--device")]
    assert devices == ["--device=nvidia.com/gpu=all", f"--device={tmp_path}/infiniband"]


def apply_hook(hook: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Run the hook, and return the container configuration that it prints."""
    argv = [sys.executable, *json.loads(hook.read_text())["hook"]["args"][1:]]
    said = subprocess.run(argv, input=json.dumps(given), capture_output=True, text=True, check=True, timeout=60)
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def default_config() -> dict[str, Any]:
    """Return podman's configuration for an image with numeric groups and annotations for crun."""
    return {
        "root": {"path": "/x", "readonly": True},
        "process": {
            "args": ["python3"],
            "capabilities": {},
            "noNewPrivileges": True,
            "user": {"uid": 0, "gid": 0, "umask": 18, "additionalGids": [42, 6]},
        },
        "annotations": {"run.oci.hooks.stdout": "/etc/nologin", "run.oci.seccomp_bpf_data": "BgAAAAAA/38="},
        "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}], "resources": {}, "seccomp": {}},
    }


def test_hook_sets_numeric_ids_and_removes_annotations(spec: dict[str, Any], tmp_path: Path) -> None:
    container.command(spec, USER)
    (hook,) = (tmp_path / LAUNCH_ID / "podman").iterdir()
    assert json.loads(hook.read_text())["stages"] == ["precreate"]
    expected = default_config()
    expected["process"]["user"] = {"uid": 1001, "gid": 1002, "umask": 18, "additionalGids": [44, 109, 1002]}
    expected["annotations"] = None
    expected["linux"]["namespaces"] = [{"type": "mount"}]
    assert apply_hook(hook, default_config()) == expected


def test_version_check_uses_the_hook_and_a_separate_process_namespace(spec: dict[str, Any], tmp_path: Path) -> None:
    del spec
    argv = container.engine(str(tmp_path / "hooks"), USER)
    assert argv[:4] == ["/usr/bin/podman", "--runtime=crun", f"--hooks-dir={tmp_path}/hooks", "run"]
    (hook,) = (tmp_path / "hooks").iterdir()
    found = apply_hook(hook, default_config())
    assert found["process"]["user"]["additionalGids"] == [44, 109, 1002]
    assert found["annotations"] is None
    assert found["linux"]["namespaces"] == [{"type": "pid"}, {"type": "mount"}]


def test_containers_of_finished_launches_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    running = "20260101-130000-abcd"
    asked: list[tuple[str, ...]] = []

    def run(*argv: str, **_how: Any) -> CommandResult:
        asked.append(argv)
        names = f"muster-launch-{LAUNCH_ID}\nmuster-launch-{running}\nmuster-launch-../x\nothers\n"
        return CommandResult(names if argv[1] == "ps" else "", code=0)

    monkeypatch.setattr(container, "run", run)
    monkeypatch.setattr(state, "is_over", lambda launch_id: launch_id == LAUNCH_ID)
    assert container.remove_old() == [f"muster-launch-{LAUNCH_ID}"]
    assert asked[1] == ("podman", "rm", "--force", "--ignore", f"muster-launch-{LAUNCH_ID}")


def test_cdi_specification_is_found_in_both_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "CDI", (str(tmp_path / "etc"), str(tmp_path / "run")))
    assert not images.describes_gpus()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/other.yaml").write_text("kind: vendor.com/net\n")
    assert not images.describes_gpus()
    (tmp_path / "run/nvidia.yaml").write_text("cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n")
    assert images.describes_gpus()


REQUEST = {"user": "muster", "name": "muster-look-x", "id": "a" * 64}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[tuple[str, ...]]]:
    """Record commands instead of running them. The image has already passed the check for device files."""
    argvs: list[tuple[str, ...]] = []

    def run(*argv: str, **_how: Any) -> CommandResult:
        argvs.append(argv)
        return RESULT[0]

    monkeypatch.setattr(images, "run", run)
    monkeypatch.setattr(pwd, "getpwnam", lambda _name: USER)
    monkeypatch.setattr(os, "getgrouplist", lambda _name, gid: [gid])
    monkeypatch.setattr(images, "HOOKS", str(tmp_path / "hooks-{}"))
    monkeypatch.setattr(images, "SEEN", str(tmp_path))
    (tmp_path / REQUEST["id"]).touch()
    yield argvs
    RESULT[0] = CommandResult("", code=0)


RESULT = [CommandResult("", code=0)]


@pytest.mark.parametrize(
    ("answer", "text", "error"),
    [
        (CommandResult('banner\n{"python": [3, 12, 3]}\n', code=0), '{"python": [3, 12, 3]}', ""),
        (CommandResult("x" * 1000, code=0), "x" * 400, ""),
        (CommandResult("", code=0), "", ""),
        (
            CommandResult("", aside="boom\x1b[2J\nfix: run it", code=1),
            "",
            "exited with code 1, output: 'boom\\x1b[2J fix: run it'",
        ),
        (
            CommandResult("", why="podman did not answer within 90 s", late=True),
            "",
            "podman did not answer within 90 s",
        ),
    ],
)
def test_versions_are_read_from_the_last_line_of_output(
    answer: CommandResult, text: str, error: str, asked: list[tuple[str, ...]], tmp_path: Path
) -> None:
    RESULT[0] = answer
    assert images.versions(REQUEST) == {"text": text, "error": error, "unsafe": ""}
    assert f"--hooks-dir={tmp_path}/hooks-1001" in asked[0]
    assert "--no-healthcheck" in asked[0]
    assert ("podman", "rm", "--force", "--ignore", "muster-look-x") in asked or not answer.late


def test_image_with_a_device_file_is_not_run(
    asked: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(images, "SEEN", str(tmp_path / "seen"))
    RESULT[0] = CommandResult("/dev\n", code=0)
    found = images.versions(REQUEST)
    assert found["unsafe"].startswith("the device file '/")
    assert {argv[1:3] for argv in asked} == {("image", "mount"), ("image", "unmount")}
    assert not (tmp_path / "seen").exists()


def test_image_is_checked_once(asked: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(images, "SEEN", str(tmp_path / "seen"))
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/null").symlink_to("/dev/null")
    os.mkfifo(root / "etc/fifo")
    RESULT[0] = CommandResult(f"{root}\n", code=0)
    assert images.unsafe(REQUEST["id"]) == ""
    assert images.unsafe(REQUEST["id"]) == ""
    assert len(asked) == 2


def test_oversized_image_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="the image has too many files"):
        images.first_device(str(tmp_path), 0.0)


def test_version_program_runs_on_any_python() -> None:
    argv = [sys.executable, "-c", images.VERSIONS]
    said = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(said.stdout)["python"] == list(sys.version_info[:3])
