"""What container_engine asks an engine, what it does, and what it says when that did not help."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from modules_here import Commands, among_files_of, answer, load, write

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

ACTIVE = "ActiveState=active\n"
CONFIGURE, RELOAD = "nvidia-ctk runtime configure --runtime=docker", "systemctl reload docker.service"
SHOW_DOCKER = "systemctl show --property=ActiveState docker.service"
INFO, NAMES = "docker info --format {{json .}}", "docker ps --format {{.Names}}"
NOT_NAMED = "/etc/docker/daemon.json does not name the runtime nvidia"
FIX = "To change it, run ansible-playbook site.yml --tags gpu_stack -e container_toolkit_mode=manage"
SETTINGS = '{"runtimes": {"nvidia": {}}}'


def info(*runtimes: str, **more: Any) -> str:
    return json.dumps({"Runtimes": {name: {} for name in runtimes}, **more})


def engine(monkeypatch: pytest.MonkeyPatch, folder: Path, commands: Commands, *programs: str) -> ModuleType:
    """The module on a node whose files are in a folder, and whose programs are these."""
    module = load("container_engine")
    monkeypatch.setattr(module, "run", commands)
    monkeypatch.setattr(module, "SECONDS_TO_RELOAD", 0)
    monkeypatch.setattr(module.shutil, "which", lambda name, **_: name if name in programs else None)
    return among_files_of(folder, module, monkeypatch)


def test_docker_is_given_the_runtime_and_reloads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = {SHOW_DOCKER: ACTIVE, INFO: [info("runc"), info("runc", "nvidia")], NAMES: "", CONFIGURE: "", RELOAD: ""}
    commands = Commands(said)
    module = engine(monkeypatch, tmp_path, commands, "dockerd")
    assert answer(module, node="node1", engine="docker") == {
        "changed": True,
        "differences": [NOT_NAMED],
        "diff": {
            "before_header": "docker",
            "after_header": "docker",
            "before": f"{NOT_NAMED}\n",
            "after": f"{CONFIGURE}\n{RELOAD}\n",
        },
    }
    look = [SHOW_DOCKER, INFO, NAMES]
    assert commands.ran == [*look, CONFIGURE, RELOAD, *look, *look]
    assert answer(module, node="node1", engine="docker")["changed"] is False


@pytest.mark.parametrize(("check", "mode"), [(True, "manage"), (False, "verify")])
def test_what_only_looks_does_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: str, check: bool) -> None:
    commands = Commands({SHOW_DOCKER: ACTIVE, INFO: info("runc"), NAMES: "one two\n"})
    module = engine(monkeypatch, tmp_path, commands, "dockerd")
    answered = answer(module, node="node1", engine="docker", mode=mode, check=check)
    assert commands.ran == [SHOW_DOCKER, INFO, NAMES]
    assert answered.get("msg") == (f"node1: {NOT_NAMED}. {FIX}." if mode == "verify" else None)
    assert answered.get("changed", False) is check


@pytest.mark.parametrize(
    ("said", "ends"),
    [
        ({}, ", which ends one, two"),
        ({"LiveRestoreEnabled": True}, ""),
    ],
)
def test_a_docker_that_does_not_take_it_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: dict[str, Any], ends: str
) -> None:
    write(tmp_path / "etc/docker/daemon.json", SETTINGS)
    commands = Commands({SHOW_DOCKER: ACTIVE, INFO: info("runc", **said), NAMES: "one\ntwo\n", RELOAD: ""})
    module = engine(monkeypatch, tmp_path, commands, "dockerd")
    assert answer(module, node="node1", engine="docker")["msg"] == (
        "node1: docker has read its file, and still does not know the runtime nvidia. "
        f"Restart it: sudo systemctl restart docker{ends}."
    )


def test_a_step_that_does_not_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands = Commands({SHOW_DOCKER: "ActiveState=inactive\n"})
    module = engine(monkeypatch, tmp_path, commands, "dockerd")
    why = "nvidia-ctk is not there"
    assert answer(module, node="node1", engine="docker")["msg"] == (
        f"node1: Register the runtime with docker did not work: {why}. By hand: sudo {CONFIGURE}."
    )


def test_steps_that_change_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands = Commands({SHOW_DOCKER: "ActiveState=inactive\n", CONFIGURE: ""})
    module = engine(monkeypatch, tmp_path, commands, "dockerd")
    assert answer(module, node="node1", engine="docker")["msg"] == (
        f"node1: {NOT_NAMED}, although this was done: {CONFIGURE}."
    )


@pytest.mark.parametrize(
    ("state", "said", "why"),
    [
        ("", "", "docker.service is not known to systemd"),
        ("ActiveState=failed\n", "", "docker.service is failed"),
        (ACTIVE, {"text": "", "why": "docker ended with 1"}, "docker ended with 1"),
        (ACTIVE, {"text": '{"ServerErrors": [" refused "]}', "why": "docker ended with 1"}, "refused"),
        (ACTIVE, "{}", "it says nothing of its runtimes"),
        (ACTIVE, '{"Runtimes": {}, "ServerErrors": ["' + "x" * 300 + '"]}', "x" * 200),
    ],
)
def test_why_docker_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state: str, said: Any, why: str
) -> None:
    write(tmp_path / "etc/docker/daemon.json", SETTINGS)
    commands = Commands({SHOW_DOCKER: state, INFO: said})
    module = engine(monkeypatch, tmp_path, commands, "dockerd")
    answered = answer(module, node="node1", engine="docker")
    assert answered["warnings"] == [
        f"node1: docker does not answer ({why}), and will know the runtime when it is started."
    ]
    assert answered["changed"] is False


def test_the_docker_of_a_snap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write(tmp_path / "snap/docker/current/one", "")
    said = answer(engine(monkeypatch, tmp_path, Commands()), node="node1", engine="docker")["msg"]
    assert said.startswith("node1: its docker is the snap's, which reads another file than /etc/docker/daemon.json")


@pytest.mark.parametrize(
    ("driver", "state", "steps"),
    [
        ("580.95.05\n", "LoadState=loaded\n", ["systemctl restart nvidia-cdi-refresh.service"]),
        ("580.95.05\n", "LoadState=not-found\n", ["nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"]),
        ("580.82.07\n", "", []),
        ("", "", []),
    ],
)
def test_podman_is_told_of_the_devices(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, driver: str, state: str, steps: list[str]
) -> None:
    write(tmp_path / "etc/cdi/nvidia.yaml", "kind: nvidia.com/gpu\n  - libcuda.so.580.82.07\n")
    if driver:
        write(tmp_path / "sys/module/nvidia/version", driver)
    refresh = "systemctl show --property=LoadState nvidia-cdi-refresh.service"
    commands = Commands({refresh: state})
    module = engine(monkeypatch, tmp_path, commands, "podman")
    answered = answer(module, node="node1", engine="podman", check=True)
    assert answered["diff"]["after"] == "".join(f"{step}\n" for step in steps)
    assert commands.ran == [refresh]


@pytest.mark.parametrize(
    ("properties", "age", "shims", "steps"),
    [
        ({}, -60, 0, False),
        ({}, 60, 0, True),
        ({"ActiveState": "inactive"}, 60, 0, False),
        ({}, 60, 1, False),
        ({"KillMode": "process"}, 60, 1, True),
        ({"KillMode": "process", "BoundBy": "a.service docker.service"}, 60, 1, False),
        ({"KillMode": "process", "RequiredBy": "docker.service"}, 60, 1, False),
        ({"ExecMainStartTimestampMonotonic": "0"}, 60, 0, False),
    ],
)
def test_containerd_reads_files_that_are_newer_than_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, properties: dict[str, str], age: float, shims: int, steps: bool
) -> None:
    """age: by how many seconds its files were changed behind its start. shims: of containers that run."""
    write(tmp_path / "etc/containerd/config.toml", "nvidia-container-runtime")
    module = engine(monkeypatch, tmp_path, commands := Commands(), "containerd")

    def words(pid: int) -> list[str]:
        """Another user's process may have it that whoever reads its command line waits for ever."""
        assert pid in (7, 8)
        return ["shim", "-id", f"{pid}" * 20][: 3 if pid == 7 else 2]

    monkeypatch.setattr(module.process, "ids", lambda: [6, 7, 8, 9][: 4 * shims])
    monkeypatch.setattr(module.process, "read", lambda pid, _name: "sleep" if pid == 6 else "containerd-shim")
    monkeypatch.setattr(module.process, "user_id", lambda pid: 1000 if pid == 9 else 0)
    monkeypatch.setattr(module.process, "words", words)
    monkeypatch.setattr(module.time, "clock_gettime", lambda _clock: 1000.0)
    changed = (tmp_path / "etc/containerd/config.toml").stat().st_ctime
    monkeypatch.setattr(module.time, "time", lambda: changed - age + 900)
    show = "systemctl show --property=ActiveState,KillMode,ExecMainStartTimestampMonotonic,RequiredBy,BoundBy"
    shown = {"ActiveState": "active", "ExecMainStartTimestampMonotonic": "100000000", **properties}
    commands.answers[f"{show} containerd.service"] = "".join(f"{key}={value}\n" for key, value in shown.items())
    answered = answer(module, node="node1", engine="containerd", check=True)
    assert answered["diff"]["after"] == ("systemctl restart containerd.service\n" if steps else "")
    ends = (
        "containerd has to be restarted to know the runtime, and that would end what runs in it: 777777777777. "
        "When it may: sudo systemctl restart containerd"
    )
    assert answered.get("warnings", []) == ([f"node1: {ends}."] if shims and not steps else [])
