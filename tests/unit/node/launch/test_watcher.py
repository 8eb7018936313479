"""Starting, querying and stopping a watcher on the head node, with a stub of systemd."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from muster_node.launch import mesh, state, watcher
from muster_node.tools.run import CommandResult

if TYPE_CHECKING:
    from pathlib import Path

FIRST = "20261123-085513-709e"
REQUEST = {
    "launch_id": FIRST,
    "program": base64.b64encode(b"the program").decode(),
    "spec": {"secrets": ["x"]},
    "properties": {"KillMode": "control-group"},
}


class Systemd:
    """Stub of systemd. `commands` lists all commands, `alive` the running units."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, ...]] = []
        self.alive: set[str] = set()
        self.answer = CommandResult("", code=0)

    def ask(self, *words: str, **_how: Any) -> CommandResult:
        self.commands.append(words)
        return self.answer

    def unit_state(self, unit: str) -> dict[str, str]:
        return {"ActiveState": "active" if unit in self.alive else "inactive"}


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemd:
    found = Systemd()
    monkeypatch.setattr(state, "root", lambda: f"{tmp_path}/muster/launches")
    monkeypatch.setattr(state, "ask_systemd", found.ask)
    monkeypatch.setattr(state, "systemctl", found.ask)
    monkeypatch.setattr(state, "unit_state", found.unit_state)
    return found


def test_watcher_files_are_private(systemd: Systemd, tmp_path: Path) -> None:
    assert watcher.begin(REQUEST) == {"error": ""}
    folder = tmp_path / "muster/watchers" / FIRST
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "watcher.pyz": 0o600,
        "spec.json": 0o600,
    }
    (argv,) = systemd.commands
    assert argv[:5] == ("systemd-run", "--quiet", "--collect", "--unit", f"muster-watch-{FIRST}.service")
    assert argv[-2:] == (f"{folder}/watcher.pyz", str(folder))
    assert "secrets" not in " ".join(argv)


def test_failed_start_leaves_no_secrets(systemd: Systemd, tmp_path: Path) -> None:
    systemd.answer = CommandResult("", "systemd-run ended with 1", "Failed to connect to bus", 1)
    assert watcher.begin(REQUEST) == {"error": "Failed to connect to bus"}
    assert not (tmp_path / "muster/watchers" / FIRST / "spec.json").exists()


def test_state_of_the_watcher_is_returned(systemd: Systemd, tmp_path: Path) -> None:
    assert watcher.word({"launch_id": FIRST}) == {"alive": False, "state": None}
    watcher.begin(REQUEST)
    systemd.alive.add(f"muster-watch-{FIRST}.service")
    (tmp_path / "muster/watchers" / FIRST / "state.json").write_text(json.dumps({"said": ["x"]}))
    assert watcher.word({"launch_id": FIRST}) == {"alive": True, "state": {"said": ["x"]}}


def test_stopping_a_watcher_that_has_ended_succeeds(systemd: Systemd) -> None:
    systemd.answer = CommandResult("", "systemctl ended with 5", "Unit not loaded.", 5)
    assert watcher.end({"launch_id": FIRST}) == {"error": ""}
    systemd.alive.add(f"muster-watch-{FIRST}.service")
    assert watcher.end({"launch_id": FIRST}) == {"error": "Unit not loaded."}


def test_old_watchers_are_removed_except_running_ones(systemd: Systemd, tmp_path: Path) -> None:
    names = [f"202611{day:02d}-085513-709e" for day in range(1, 16)]
    for name in names:
        (tmp_path / "muster/watchers" / name).mkdir(parents=True)
    systemd.alive.add(f"muster-watch-{names[0]}.service")
    watcher.begin(REQUEST)
    left = sorted(path.name for path in (tmp_path / "muster/watchers").iterdir())
    assert left == [names[0], *names[-watcher.KEPT :], FIRST]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (CommandResult("", code=0, aside="Warning: something"), {"code": 0, "said": "Warning: something"}),
        (
            CommandResult("", "ssh ended with 255", "Host key verification failed.\r\n", 255),
            {"code": 255, "said": "Host key verification failed."},
        ),
        (
            CommandResult("", "ssh did not answer within 20 s", late=True),
            {"code": 255, "said": "ssh did not answer within 20 s"},
        ),
    ],
)
def test_outcome_of_a_login_test_is_returned(answer: CommandResult, outcome: dict[str, Any]) -> None:
    assert mesh.outcome(answer) == outcome
