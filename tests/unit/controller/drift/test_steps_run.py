"""Steps that run in a separate ansible-playbook process: its arguments, environment and passwords."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible import context
from ansible.module_utils.common.collections import ImmutableDict
from ansible.plugins.loader import callback_loader

from muster_controller.drift import steps_run
from paths import ROOT


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    options: dict[str, Any] = {
        "inventory": ("/srv/lab", "more.yml"),
        "extra_vars": ("repair=true", "@job.yml"),
        "remote_user": "ops",
        "become": True,
        "become_ask_pass": True,
        "ask_pass": False,
    }
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict(options))
    return options


def test_command_repeats_options_of_this_run(given: dict[str, Any]) -> None:
    argv = steps_run.command(("baseline", "network"), "node1,node2", check=True)
    assert argv[1].endswith("ansible-playbook")
    assert argv[2].endswith("/site.yml")
    rest = " ".join(argv[3:])
    assert rest == (
        "--tags baseline,network -i /srv/lab -i more.yml --limit node1,node2 --check --diff -e repair=true -e @job.yml"
        " --user ops --become"
    )
    assert "--check" not in steps_run.command(("baseline",), "", check=False)


def test_only_runs_without_check_mode_write_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWX_ISOLATED_DATA_DIR", "/tmp/x")
    look = steps_run.environment(Path("/x"), check=True)
    assert look["ANSIBLE_CALLBACKS_ENABLED"] == "collect"
    assert "report" in steps_run.environment(Path("/x"), check=False)["ANSIBLE_CALLBACKS_ENABLED"]
    assert "AWX_ISOLATED_DATA_DIR" not in look


@pytest.mark.parametrize("program", ["sleep 60", "trap '' TERM; while true; do sleep 0.1; done"])
def test_steps_that_hang_are_stopped(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_run, "GRACE", 0.3)
    process = subprocess.Popen(["sh", "-c", program])
    assert steps_run.ended_late(process, 0.2).startswith("stopped after 0 s")
    assert process.returncode in (-signal.SIGTERM, -signal.SIGKILL)
    assert steps_run.ended_late(subprocess.Popen(["true"]), 60.0) == ""


def test_one_node_cannot_fill_the_collected_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(steps_run.COLLECT, str(tmp_path / "collected"))
    callback_loader.add_directory(str(ROOT / "plugins/callback"))
    collect = callback_loader.get("collect")
    task = SimpleNamespace(_role=None, name="Look", action="look")
    for name, text in (*(("node1", "x" * 400),) * 50, ("node2", "y")):
        said = {"changed": True, "differences": [text] * 60}
        collect.v2_runner_on_ok(
            SimpleNamespace(result=said, task=task, host=SimpleNamespace(get_name=lambda name=name: name))
        )
    nodes = [one["node"] for one in steps_run._lines(tmp_path / "collected")]
    assert (30 < nodes.count("node1") < 50, nodes[-1]) == (True, "node2")


def test_passwords_are_passed_only_through_pipes(given: dict[str, Any], tmp_path: Path) -> None:
    del given
    vault = SimpleNamespace(secrets=[("lab", SimpleNamespace(bytes=b"opensesame"))])
    kept, typed = "not typed", "hunter2"
    play = SimpleNamespace(password=kept, become_pass=typed)
    action: Any = SimpleNamespace(_play_context=play, _loader=SimpleNamespace(_vault=vault))
    with steps_run._secrets(action, tmp_path) as argv:
        assert argv[::2] == ["--become-password-file", "--vault-id"]
        assert not any(secret in " ".join(argv) for secret in ("hunter2", "opensesame", "not typed"))
        pipe = Path(argv[1])
        assert pipe.is_fifo()
        assert pipe.stat().st_mode & 0o777 == 0o600
        assert pipe.read_text() == "hunter2\n"
        assert argv[3].startswith("lab@")

        # The other pipe is not read: closing does not wait for a reader.
