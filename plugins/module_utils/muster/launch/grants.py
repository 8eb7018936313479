"""What a launch needs of the controller's own machine, and whether it is granted."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..verdict.check import Check

if TYPE_CHECKING:
    from ..verdict.finding import Finding

GRANTED = Check(
    "launch.controller",
    seen="stand-in",
    reads="how many files, processes and threads the controller grants; soft limits are raised where that is possible",
    fires="a launch on that many nodes needs more (fail)",
    fix="Type the command that is named",
)
FILES_PER_NODE = 5  # the pipes of ssh, and what waits for them
PROCESSES_PER_NODE = 4  # ssh, its shared connection, what begins it, and a thread
OTHERS = 128  # files and processes beside those


class Grants(NamedTuple):
    """files, processes: the limits of one process and of one user. room: further processes and threads that the control
    group takes. None: without a limit.
    """

    files: int | None
    processes: int | None
    room: int | None


def needed(nodes: int) -> Grants:
    processes = PROCESSES_PER_NODE * nodes
    return Grants(FILES_PER_NODE * nodes + OTHERS, processes + OTHERS, processes)


def judge(granted: Grants, nodes: int) -> list[Finding]:
    """What is not enough, with what to type for it; nothing where all is."""
    needs = needed(nodes)
    fixes = (
        ("open files", "Raise the limit with", f"ulimit -n {needs.files}"),
        ("processes of one user", "Raise the limit with", f"ulimit -u {needs.processes}"),
        ("more processes and threads", "Raise pids.max of its control group", ""),
    )
    return [
        GRANTED.fail(
            "controller",
            f"a launch on {nodes} nodes needs {need} {what} on the controller, which grants {grant}",
            fix=fix,
            command=command,
        )
        for need, grant, (what, fix, command) in zip(needs, granted, fixes, strict=True)
        if need is not None and grant is not None and grant < need
    ]
