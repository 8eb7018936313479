"""The declared shapes of messages between controller and node program, compared with real answers of that program."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING, Any

from muster.launch import data, messages, reservation
from muster_node.launch import facts, looking, own, seats
from muster_node.tools import process

if TYPE_CHECKING:
    from pathlib import Path


def keys(shape: Any) -> set[str]:
    return set(shape.__annotations__)


def test_identity_answer_has_the_declared_keys() -> None:
    assert set(own.identity({})) == keys(messages.Identity)


def test_prepare_answer_has_the_declared_keys(tmp_path: Path) -> None:
    request: messages.PrepareRequest = {
        "user": pwd.getpwuid(os.getuid()).pw_name,
        "executable": "/bin/sh",
        "script": "/etc/hosts",
        "chdir": str(tmp_path),
        "run_root": str(tmp_path / "launches"),
        "work_root": str(tmp_path / "work"),
        "address": "127.0.0.1",
        "port": 29500,
        "gpus": False,
        "beat_port": None,
        "path": "/usr/bin:/bin",
        "environment": str(tmp_path),
        "caches": {"cluster_run_root": str(tmp_path)},
        "data": [str(tmp_path)],
    }
    seen = facts.prepare({**request})
    assert set(seen) == keys(messages.Facts)
    assert set(seen["user"]) == keys(messages.UserFacts)
    assert set(seen["script"]) == set(seen["executable"]) == set(seen["chdir"]) == keys(messages.FileFacts)
    assert set(seen["caches"]["cluster_run_root"]) == keys(messages.CacheFacts)
    assert set(seen["disk"]) == keys(messages.DiskFacts)
    assert set(seen["port"]) == keys(messages.PortFacts)
    assert set(process.who(os.getpid())) == keys(messages.ProcessFacts)
    assert set(seen["data"][0]) == keys(data.DataFacts)
    assert set(seen["occupied"]) == keys(reservation.Occupied)
    assert set(seats.holder(os.getpid())) == set(seats.NOT_SEEN) == keys(reservation.Holder)


def test_look_answer_has_the_declared_keys(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/agent.log").write_text("agent\n")
    request: messages.LookRequest = {
        "launch_id": "20260101-120000-abcd",
        "run_dir": str(tmp_path),
        "lease": 1.0,
        "wait": 0.0,
        "sampled": 0,
        "offsets": {},
        "limit": 100,
    }
    look = looking.look({**request})
    assert set(look) == keys(messages.LaunchLook)
    assert set(look["logs"]["agent"]) == keys(messages.LogPart)
    assert set(look["disk"]) == keys(messages.DiskFacts)
