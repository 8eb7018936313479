"""Rows in which the ranks do not run the same computation."""

from __future__ import annotations

from pathlib import Path

from damage import other_code_on
from row import Row
from rows.process import STALL

PAYLOAD = Path(__file__).parents[1] / "faulty.py"
OTHER_CODE = "/var/lib/muster-test-code/train.py"

ROWS = (
    Row(
        "program-sleep",
        "a rank is busy elsewhere, and the launch stalls",
        right=("program.straggler @ node2",),
        twin="no line is written any more",
        variables=STALL,
        arguments=("--fault=sleep",),
        gates=("node2",),
    ),
    Row(
        "program-sleep-timeout",
        "a rank is busy elsewhere, and the other ranks' collective times out",
        right=("program.straggler @ node2",),
        twin="Timed out waiting for recv",
        arguments=("--fault=sleep", "--timeout=15"),
        gates=("node2",),
    ),
    Row(
        "program-spin",
        "a rank computes forever, and the launch stalls",
        right=("program.straggler @ node3",),
        twin="no line is written any more",
        variables=STALL,
        arguments=("--fault=spin", "--rank=2"),
        gates=("node3",),
    ),
    Row(
        "program-spin-timeout",
        "a rank computes for long, and the other ranks' collective times out",
        right=("program.straggler @ node3",),
        twin="Timed out waiting for recv",
        arguments=("--fault=spin", "--rank=2", "--timeout=15"),
        gates=("node3",),
    ),
    Row(
        "program-operation",
        "a rank calls a different collective",
        right=("program.other_operation @ node2", "program.other_operation @ no node"),
        twin="Timed out waiting for recv",
        arguments=("--fault=broadcast", "--others=barrier", "--timeout=15"),
        gates=("node2",),
    ),
    Row(
        "program-shape",
        "a rank reduces a tensor of a different size",
        right=("program.other_sizes @ no node", "program.bytes @ no node"),
        arguments=("--fault=shape", "--timeout=15"),
        gates=("node2",),
        in_ci=True,
    ),
    Row(
        "program-type",
        "a rank reduces a tensor of a different type",
        right=("program.other_types @ no node", "program.bytes @ no node"),
        arguments=("--fault=type", "--timeout=15"),
        gates=("node2",),
    ),
    Row(
        "program-no-group",
        "the script calls all_reduce before init_process_group",
        right=("program.no_group @ no node",),
        arguments=("--fault=shape", "--rank=all", "--before"),
    ),
    Row(
        "drift-code",
        "the script differs on one node",
        right=("drift.code @ no node", "drift.code @ node3"),
        arguments=("--fault=shape", "--rank=all", "--timeout=15"),
        variables={"launch_script_src": None, "launch_script": OTHER_CODE},
        before=other_code_on("node3", PAYLOAD, OTHER_CODE, ("100_000", "100_001")),
        gates=("node2",),
        in_ci=True,
    ),
    Row(
        "program-left",
        "a rank has fewer steps and exits early",
        right=("program.uneven_steps @ node2",),
        twin="Connection closed by peer",
        arguments=("--fault=leave", "--timeout=30"),
        gates=("node2",),
    ),
    Row(
        "program-parameters",
        "the model of a rank has different parameters",
        right=("program.other_model @ node2", "program.other_model @ no node"),
        arguments=("--fault=parameters", "--rank=all", "--timeout=30"),
        gates=("node2",),
    ),
    Row(
        "program-unused",
        "a layer is not used by the loss",
        right=("program.unused_parameters @ no node",),
        arguments=("--fault=unused", "--rank=all"),
        gates=("node2",),
    ),
    Row(
        "program-load",
        'a checkpoint of DDP is loaded into the bare model ("module." prefix)',
        right=("program.checkpoint.prefix @ no node",),
        arguments=("--fault=load", "--rank=all"),
        gates=("node2",),
    ),
    Row(
        "program-monitored",
        "a rank does not reach a monitored barrier",
        right=("program.barrier @ node2", "program.straggler @ node2"),
        arguments=("--fault=sleep", "--others=monitored", "--timeout=60"),
        gates=("node2",),
    ),
)
