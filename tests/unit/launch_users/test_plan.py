"""Every file in cases/make_plan describes one node: its launch users, its state, and the expected plan.

A case lists differences from `there`, a node that is already set up for the user anna by an earlier run.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from cases import cases
from muster.launch_users import files, model
from muster.launch_users.plan import make_plan
from muster.launch_users.request import users_of

ROOT_MAY_RAISE = -1
ANNA = model.LaunchUser("anna")
LIMITS = {"memlock": ANNA.memlock, "nofile": ANNA.nofile, "tasks": ANNA.tasks}
ALL = {"started": 1000.0, "in_group": True, "memlock": ["inf", "inf"], "nofile": [65536, 1048576]}
HERS: dict[str, Any] = {
    "uid": 2001,
    "gid": 2001,
    "member": True,
    "linger": True,
    "folder_owner": "anna",
    "torchrun": True,
}
NOTED: dict[str, Any] = {"group": True, "users": {"anna": {"uid": 2001, "member": True, "linger": True, **LIMITS}}}
TORCHRUN = "/opt/muster/pytorch/current/bin/torchrun"


def manager_of(given: dict[str, Any] | None) -> model.UserManager | None:
    if given is None:
        return None
    memlock, nofile = ((float(given[name][0]), float(given[name][1])) for name in ("memlock", "nofile"))
    return model.UserManager(given["started"], given["in_group"], memlock, nofile, given.get("unit_nofile", 65536))


def user_of(given: dict[str, Any]) -> model.SeenUser:
    return model.SeenUser(**{**given, "manager": manager_of(given.get("manager"))})


def files_of(record: model.LaunchUsersRecord, gpus: int) -> dict[str, str]:
    """Return the files that an earlier run wrote for the recorded users."""
    users = [entry.user for entry in record.users.values()]
    texts = files.of_users({entry.uid: entry.user for entry in record.users.values()})
    return texts | {
        files.TMPFILES: files.tmpfiles_text(files.seats_of(gpus)),
        files.PROFILE: files.profile_text(),
        files.LIMITS: files.limits_text(users),
        files.USER_CONF: files.user_conf_text(users),
    }


def seen_of(given: dict[str, Any]) -> model.LaunchUsersState:
    if given.get("bare"):
        users = {name: user_of(user) for name, user in given["users"].items()}
        return model.LaunchUsersState(users=users, capabilities=ROOT_MAY_RAISE)
    noted = {"group": True, "users": {**NOTED["users"], **given.get("noted", {})}}
    record = files.record_of(files.record_text(files.record_of(json_of(noted))))
    texts = files_of(record, 0)
    seats = dict.fromkeys(files.seats_of(0), "root:root 0644") | {"": f"root:{model.GROUP} 0750"}
    accounts: dict[str, dict[str, Any]] = {"anna": {**HERS, "manager": ALL}}
    for name, more in given.get("users", {}).items():
        accounts[name] = {**accounts.get(name, {}), **more}
    return model.LaunchUsersState(
        users={name: user_of(user) for name, user in accounts.items()},
        record=record,
        group=True,
        files={path: text for path, text in texts.items() if path not in given.get("missing", [])},
        changed=dict.fromkeys(texts, given.get("changed", 500.0)),
        link=TORCHRUN,
        seats={name: kept for name, kept in seats.items() if name not in given.get("closed_seats", [])},
        gpus=given.get("gpus", 0),
        unsafe=given.get("unsafe", ""),
        capabilities=given.get("capabilities", ROOT_MAY_RAISE),
    )


def json_of(value: Any) -> str:
    return json.dumps(value)


def done(plan: model.LaunchUsersPlan) -> dict[str, Any]:
    """Return the actions of a plan, without its notes."""
    names = (
        *("make_group", "join", "link", "reload", "seats", "folders", "linger", "restart", "end_linger", "leave"),
        *("empty_folders", "drop_group", "close_seats"),
    )
    found = {name: value for name in names if (value := getattr(plan, name)) not in (False, [], None)}
    written = sorted(path for path, text in plan.files.items() if text is not None)
    removed = sorted(path for path, text in plan.files.items() if text is None)
    return found | ({"written": written} if written else {}) | ({"removed": removed} if removed else {})


@cases(__file__, "make_plan")
def test_launch_users_plan_matches_the_case(case: dict[str, Any]) -> None:
    request = model.LaunchUsersRequest(
        users_of(case.get("request", ["anna"]), LIMITS), torchrun=TORCHRUN, gpus=case.get("gpus", 0)
    )
    plan = make_plan(request, seen_of(case.get("seen", {})))
    assert plan.problems == case.get("problems", [])
    assert done(plan) == case.get("done", {})
    assert plan.notes == case.get("notes", [])
    assert plan.needed == bool(done(plan))
    assert sorted(plan.after.users) == case.get("after", ["anna"] if not plan.problems else [])


def test_written_record_can_be_parsed() -> None:
    record = files.record_of(json_of(NOTED))
    assert files.record_of(files.record_text(record)) == record
    assert files.record_of("") == model.LaunchUsersRecord()


@pytest.mark.parametrize("text", ["[]", "{", '{"users": {"anna": {}}}', '{"users": {"anna": {"uid": "x"}}}'])
def test_invalid_record_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        files.record_of(text)


def test_limits_use_the_units_of_each_file() -> None:
    user = model.LaunchUser("ben", memlock="64G", nofile="4096:8192", tasks="500")
    assert files.limits_text([user]).splitlines()[1:] == [
        "ben soft memlock 67108864",
        "ben hard memlock 67108864",
        "ben soft nofile 4096",
        "ben hard nofile 8192",
    ]
    assert files.manager_text(user).splitlines()[1:] == ["[Service]", "LimitMEMLOCK=64G", "LimitNOFILE=4096:8192"]
    conf = files.user_conf_text([user, model.LaunchUser("anna", nofile="5000")])
    assert conf.splitlines()[1:] == ["[Manager]", "DefaultLimitNOFILE=5000:8192"]
    assert files.slice_text(user).splitlines()[1:] == ["[Slice]", "TasksMax=500"]
