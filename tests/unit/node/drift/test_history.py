"""Package logs of Debian and Ubuntu.

The recorded logs are from Debian 12. One package was removed with apt, and another was upgraded with dpkg. The log of
unattended upgrades is not recorded but written in Ubuntu's format.
"""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muster_node.drift import history
from muster_node.tools import files
from muster_node.tools.run import CommandResult

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORDED = Path(__file__).parent / "recorded"
REMOVED = 1795516328.0  # 2026-11-24 10:32:08 UTC
UNATTENDED = """\

Start-Date: 2026-11-25  06:12:01
Commandline: /usr/bin/unattended-upgrade
Upgrade: chrony:amd64 (4.3-2, 4.3-3)
End-Date: 2026-11-25  06:12:09
"""


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_actions_on_requested_packages_are_read_from_the_dpkg_log() -> None:
    log = (RECORDED / "debian12_dpkg.log").read_text()
    done = [*history.dpkg([log], REMOVED, {"chrony", "python3-venv"})]
    assert [(one["at"] - REMOVED, one["action"], one["package"], one["after"]) for one in done] == [
        (1.0, "remove", "chrony", "<none>"),
        (7.0, "upgrade", "python3-venv", "3.11.2-1+b1+byhand1"),
    ]


def test_kernel_packages_are_always_reported() -> None:
    log = "2026-11-24 10:32:09 install linux-image-6.8.0-50-generic:amd64 <none> 6.8.0-50.51\n"
    assert [one["package"] for one in history.dpkg([log], 0.0, set())] == ["linux-image-6.8.0-50-generic"]


def test_command_and_user_are_read_from_the_apt_log() -> None:
    log = (RECORDED / "debian12_history.log").read_text()
    *_, last = history.apt(log, 0.0, {"chrony", "python3-venv"})
    assert last == {
        "begin": REMOVED,
        "end": REMOVED + 4,
        "command": "apt-get remove --yes chrony",
        "by": "admin (1000)",
        "packages": ["chrony"],
    }
    first, *_ = history.apt(log, 0.0, {"chrony", "python3-venv", "somebodys"})
    assert first["packages"] == ["chrony", "python3-venv"]
    assert [one["command"] for one in history.apt(log, REMOVED, set())] == ["apt-get remove --yes chrony"]


def test_unattended_upgrades_are_not_attributed_to_a_user() -> None:
    (one,) = history.apt(UNATTENDED, 0.0, {"chrony"})
    assert (one["command"], one["by"], one["packages"]) == ("/usr/bin/unattended-upgrade", "", ["chrony"])


def test_damaged_log_entries_are_skipped() -> None:
    log = "Start-Date: never\nCommandline: x\n\nStart-Date: 2026-99-99  10:00:00\n\nrubbish\n" + UNATTENDED
    assert len([*history.apt(log, 0.0, set())]) == 1
    assert [*history.dpkg(["2026-13-24 10:32:09 install chrony:amd64 a b", "", "\x00" * 50], 1.0, {"chrony"})] == []


def test_rotated_logs_are_read_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "TAIL", 200)
    (tmp_path / "old.gz").write_bytes(gzip.compress(b"x" * 5000 + b"old"))
    (tmp_path / "new").write_text("y" * 5000 + "new")
    old, new = history.texts((str(tmp_path / "old.gz"), str(tmp_path / "new"), str(tmp_path / "none")))
    assert (len(new), new[-3:]) == (200, "new")
    assert len(old) <= 200


def entry(text: str, at: int = 1, sent: int | None = None, uid: int = 1000) -> str:
    """Return a journal entry. `at` is the receive time, `sent` the optional send time, uid that of the sender."""
    source = {} if sent is None else {"_SOURCE_REALTIME_TIMESTAMP": str(sent * 1_000_000)}
    return json.dumps({"MESSAGE": text, "_UID": str(uid), "__REALTIME_TIMESTAMP": str(at * 1_000_000), **source})


@pytest.fixture
def accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "user_name", {0: "root", 1000: "admin", 1001: "mallory"}.get)


@pytest.mark.usefixtures("accounts")
def test_commands_run_with_sudo_are_read_from_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[tuple[str, ...]] = []
    lines = "\n".join(
        [
            entry("admin : PWD=/home/admin ; USER=root ; COMMAND=/usr/bin/vi /etc/hosts", 7),
            entry(
                "   admin : PWD=/home/admin ; USER=root ; COMMAND=/usr/bin/dpkg --install /tmp/byhand.deb", 9, sent=5
            ),
            entry("admin : PWD=/root ; USER=root ; COMMAND=/bin/sh -c 'echo BECOME-SUCCESS-abc ; /usr/bin/python3'"),
            entry("pam_unix(sudo:session): session closed for user root"),
            entry("admin : PWD=/ ; USER=root ; COMMAND=/usr/bin/vi /etc/forged", uid=1001),
            entry("root : PWD=/root ; USER=root ; COMMAND=/usr/bin/vi /etc/hosts", 8, uid=0),
            '{"MESSAGE": [1, 2], "__REALTIME_TIMESTAMP": "1"}',
            "no json",
        ]
    )

    def run(*argv: str, **_more: Any) -> CommandResult:
        commands.append(argv)
        return CommandResult(lines, code=0)

    monkeypatch.setattr(history, "run", run)
    found, why = history.journal(*history.JOURNALS["sudo"], 12.7)
    assert found == [
        {"at": 5.0, "text": "admin : PWD=/home/admin ; USER=root ; COMMAND=/usr/bin/dpkg --install /tmp/byhand.deb"},
        {"at": 7.0, "text": "admin : PWD=/home/admin ; USER=root ; COMMAND=/usr/bin/vi /etc/hosts"},
        {"at": 8.0, "text": "root : PWD=/root ; USER=root ; COMMAND=/usr/bin/vi /etc/hosts"},
    ]
    assert not why
    assert "--since=@12" in commands[0]
    assert history.journal(*history.JOURNALS["muster"], 0.0) == ([], "")
    # _COMM and SYSLOG_IDENTIFIER alone are chosen by the sender.
    assert [[word for word in argv if word[0] == "_"] for argv in commands] == [
        [f"_EXE={path}" for path in history.SUDO],
        ["_UID=0"],
    ]


def test_unreadable_journal_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "run", lambda *_, **__: CommandResult("", "journalctl is not there", missing=True))
    assert history.journal(["_UID=0"], "x", 0.0) == ([], "journalctl is not there")
    # journalctl exits with 1 if no entry matches.
    monkeypatch.setattr(history, "run", lambda *_, **__: CommandResult("", "journalctl ended with 1", code=1))
    assert history.journal(["_UID=0"], "x", 0.0) == ([], "")


def test_missing_file_is_dated_by_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "there"
    path.write_text("")
    path.chmod(0o640)
    there = history.file_facts(str(path))
    assert (there["mode"], there["at"], there["path"]) == ("0640", path.stat().st_ctime, str(path))
    gone = history.file_facts(str(tmp_path / "no/such/file"))
    assert gone == {"gone": True, "at": tmp_path.stat().st_ctime, "path": str(tmp_path / "no/such/file")}


def test_unit_names_are_not_parsed_as_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "run", lambda *argv, **_: pytest.fail(" ".join(argv)))
    assert history.unit_times(["--now", "a b", "$(x)"]) == {}
