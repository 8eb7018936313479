"""The folder of a launch user's own environments: who can have one, and what is removed."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING, Any

import pytest
from ansible.module_utils.muster_node.pytorch import own
from ansible.module_utils.muster_node.tools.result import RefusedError

if TYPE_CHECKING:
    from pathlib import Path

ME = pwd.getpwuid(os.geteuid()).pw_name
BUILD = "2.13.0-cpu-py3.12-1f0c2a7b"


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of launch users, in which this user has the environments old and mine."""
    monkeypatch.setattr(own, "is_launch_user", lambda _: True)
    for name in ("old", "mine"):
        (tmp_path / ME / "envs" / name / "envs" / BUILD).mkdir(parents=True)
    return tmp_path


def asked(users: Path, **more: Any) -> dict[str, Any]:
    declared = {"mine": {"requirements": "mine.txt"}}
    given = {"node": "node1", "users_root": str(users), "environments": declared, "mode": "manage", "step": "look"}
    return {**given, "prune": False, **more}


def there(users: Path) -> list[str]:
    return sorted(path.name for path in (users / ME / "envs").iterdir())


def test_undeclared_environment_is_kept_without_a_request(users: Path) -> None:
    found = own.own_folder(asked(users, step="provide"), check=False)
    assert (found["changed"], found["login"], found["forget"]) == (False, ME, [])
    assert found["notes"] == ["node1: environment old is not declared, and is kept (environment_prune)."]
    assert there(users) == ["mine", "old"]


def test_undeclared_environment_is_removed_on_request(users: Path) -> None:
    found = own.own_folder(asked(users, prune=True), check=False)
    assert (found["changed"], found["forget"], found["diff"]["before"]) == (True, ["old"], "old\n")
    assert found["plan"]["reasons"] == ["environment old is no longer requested"]
    own.own_folder(asked(users, prune=True, step="provide"), check=True)
    own.own_folder(asked(users, prune=True, step="provide", mode="verify"), check=False)
    assert there(users) == ["mine", "old"]
    own.own_folder(asked(users, prune=True, step="provide"), check=False)
    assert there(users) == ["mine"]
    assert not own.own_folder(asked(users, prune=True), check=False)["changed"]


def test_account_without_a_folder_is_referred_to_an_administrator(
    users: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = "An administrator must add the account to launch_users"
    with pytest.raises(RefusedError, match=f"the folder {tmp_path}/none/{ME} does not exist.*{ask}"):
        own.own_folder(asked(users / "none"), check=False)
    (users / ME).chmod(0o777)
    with pytest.raises(RefusedError, match="another account can write to it"):
        own.own_folder(asked(users), check=False)
    monkeypatch.setattr(own, "is_launch_user", lambda _: False)
    with pytest.raises(RefusedError, match=f"{ME} is not in the group muster-launch. {ask}"):
        own.own_folder(asked(users), check=False)


def test_root_does_not_touch_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(RefusedError, match="root logs in"):
        own.refuse_root()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    own.refuse_root()
