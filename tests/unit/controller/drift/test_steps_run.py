"""Steps that run in a separate ansible-playbook process: its arguments, environment and passwords."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible import context
from ansible.module_utils.common.collections import ImmutableDict

from muster_controller.drift import steps_run


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
