"""What an answer's flight recorder says, as torch writes it and as somebody else may."""

from __future__ import annotations

import json

from muster_node.diagnosis import observed


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


def test_the_newest_of_many_collectives_are_shown() -> None:
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
    assert len(observed.newest(recorder(2000))) < len(recorder(70))


def test_few_are_read_as_they_are_and_none_is_said() -> None:
    assert observed.newest(recorder(3)) == recorder(3)
    flight, _ = observed.recorded(recorder(3, "tensor_parallel"))
    assert flight is not None
    assert (flight["group"], [each["sequence"] for each in flight["last"]]) == ("tensor_parallel", [1, 2, 3])
    assert observed.recorded(recorder(0)) == (None, "its flight recorder is empty")


def test_what_is_no_flight_recorder_is_said_to_be_none() -> None:
    for answer in (b"", b"[]", b"\xff", b"{" * 1000, b'{"entries":[},{],"nccl_comm_state":1}'):
        assert observed.recorded(answer)[0] is None
    odd = b'{"entries": [7, {"process_group": "x", "collective_seq_id": "9" , "pg_id": []}], "pg_status": [1]}'
    flight, _ = observed.recorded(odd)
    assert flight is not None
    assert flight["enqueued"] == 9
