"""Parsing of flight recorder files written by torch or by untrusted code."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from muster_node.diagnosis import hook, observed
from muster_node.tools import process
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def recorder(entries: int, group: str = "default_pg") -> bytes:
    found = {
        "entries": [
            {
                "collective_seq_id": number,
                "input_dtypes": ["Float"],
                "input_sizes": [[4]],
                "is_p2p": False,
                "pg_id": 0,
                "process_group": ["0", group],
                "profiling_name": "gloo:all_reduce",
                "state": "scheduled",
            }
            for number in range(1, entries + 1)
        ],
        "nccl_comm_state": {},
        "pg_status": {"0": {"last_enqueued_collective": str(entries)}},
    }
    return json.dumps(found, separators=(",", ":")).encode()


def test_newest_collectives_are_kept() -> None:
    flight, why = observed.recorded(recorder(2000))
    assert why == ""
    assert flight is not None
    assert (flight["group"], flight["enqueued"], len(flight["last"])) == ("default_pg", 2000, 16)
    assert flight["last"][-1] == {
        "sequence": 2000,
        "operation": "all_reduce",
        "sizes": "[[4]]",
        "types": "['Float']",
        "state": "scheduled",
    }
    assert len(hook.newest(recorder(2000))) < len(recorder(70))
    without_state = recorder(2000).replace(b'"nccl_comm_state":{},', b"")
    assert hook.newest(without_state).startswith(b'{"entries":[{"collective_seq_id":1937,')


def test_short_and_empty_flight_recorders_are_read() -> None:
    assert hook.newest(recorder(3)) == recorder(3)
    flight, _ = observed.recorded(recorder(3, "tensor_parallel"))
    assert flight is not None
    assert (flight["group"], [each["sequence"] for each in flight["last"]]) == ("tensor_parallel", [1, 2, 3])
    assert observed.recorded(recorder(0)) == (None, "the flight recorder is empty")


def test_collectives_of_nccl2_are_counted_by_their_entries() -> None:
    """The status of torch's recording hook (2.15) counts all calls, from 0. Its entries are "scheduled" until they have
    completed."""
    common = {"pg_id": 0, "process_group": ["0", "default_pg"]}
    calls = [
        {**common, "profiling_name": "nccl2:all_reduce", "collective_seq_id": 1, "p2p_seq_id": 0, "state": "completed"},
        {**common, "profiling_name": "nccl2:send 0->1", "collective_seq_id": 1, "p2p_seq_id": 1, "is_p2p": True},
        {**common, "profiling_name": "nccl2:send 0->1", "collective_seq_id": 1, "p2p_seq_id": 2, "is_p2p": True},
        {**common, "profiling_name": "nccl2:broadcast", "collective_seq_id": 2, "p2p_seq_id": 2, "state": "scheduled"},
    ]
    status = {"0": {"last_enqueued_collective": "3"}}
    flight, _ = observed.recorded(json.dumps({"entries": calls, "pg_config": {}, "pg_status": status}).encode())
    assert flight is not None
    assert flight["enqueued"] == 2
    assert [(one["operation"], one["state"]) for one in flight["last"]] == [
        ("all_reduce", "completed"),
        ("send 0->1", ""),
        ("send 0->1", ""),
        ("broadcast", "started"),
    ]


def test_invalid_flight_recorder_is_reported() -> None:
    for answer in (b"", b"[]", b"\xff", b"{" * 1000, b'{"entries":[},{],"nccl_comm_state":1}'):
        assert observed.recorded(answer)[0] is None
    odd = b'{"entries": [7, {"process_group": "x", "collective_seq_id": "9" , "pg_id": []}], "pg_status": [1]}'
    flight, _ = observed.recorded(odd)
    assert flight is not None
    assert flight["enqueued"] == 9


# ---------------------------------------------------------------- py-spy without permission (a stub)

PY_SPY_SAYS = {  # errors of py-spy 0.4 if the kernel refuses ptrace, or reading the memory of another process
    "ptrace": "Permission Denied: Try running again with elevated permissions by going 'sudo env \"PATH=$PATH\" !!'",
    "memory": "Error: Failed to get process executable name. Check that the process is running.\n"
    "Reason: Operation not permitted (os error 1)",
}


@pytest.fixture(params=PY_SPY_SAYS)
def rank(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    """Start a process whose PATH contains a py-spy that is denied permission."""
    (tmp_path / "py-spy").write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{PY_SPY_SAYS[request.param]}\nEND\nexit 1\n")
    (tmp_path / "py-spy").chmod(0o755)
    with subprocess.Popen(["/bin/sleep", "60"], env={"PATH": str(tmp_path)}) as sleeper:
        # The kernel shows the environment shortly after the start of a program.
        until(lambda: process.environment(sleeper.pid).get("PATH") == str(tmp_path), PATIENCE, "it has its PATH")
        yield sleeper.pid
        sleeper.kill()


@pytest.mark.parametrize(
    ("scope", "why"),
    [
        (
            "1\n",
            "; py-spy has no permission to read the process (kernel.yama.ptrace_scope is 1)",
        ),
        ("0\n", "; py-spy has no permission to read the process"),
        (None, "; py-spy has no permission to read the process"),
    ],
)
def test_py_spy_without_permission_is_reported(
    rank: int, scope: str | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observed, "YAMA", str(tmp_path / "ptrace_scope"))
    monkeypatch.setattr(observed, "SPY_SECONDS", PATIENCE)
    if scope is not None:
        (tmp_path / "ptrace_scope").write_text(scope)
    seen = observed.observed(rank, "")
    assert seen["stack"] == []
    assert seen["stack_why"].startswith("the rank does not respond (state ")
    assert seen["stack_why"].endswith(why)
