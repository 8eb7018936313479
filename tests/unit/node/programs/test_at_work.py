"""Detection of user processes that a reboot would kill."""

from __future__ import annotations

import pytest

from muster_node.programs.at_work import is_at_work
from muster_node.tools import process


@pytest.mark.parametrize(
    ("uid", "name", "counts"),
    [
        (1000, "python3", True),
        (1000, "sleep", True),
        (1000, "sshd", False),
        (1000, "bash", False),
        (1000, "SCREEN", False),
        (1000, "(sd-pam)", False),
        (0, "python3", False),
        (33, "apache2", False),
        (65534, "python3", False),
        (None, "", False),
    ],
)
def test_user_processes_other_than_logins_count_as_work(
    uid: int | None, name: str, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "user_id", lambda _: uid)
    monkeypatch.setattr(process, "known", lambda pid: {"pid": pid, "name": name})
    assert is_at_work(7) is counts
