"""Check that the controller's resource limits are sufficient for a launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..verdict.check import Check

if TYPE_CHECKING:
    from ..verdict.finding import Finding

GRANTED = Check(
    "launch.controller",
    seen="stand-in",
    reads="the controller's limits on open files, processes and threads, after Muster raised the soft limits",
    fires="a limit is too low for the number of nodes in the launch (fail)",
    fix="Run the command shown in the finding",
)
FILES_PER_NODE = 5  # the pipes of ssh, and the file descriptors that wait for them
PROCESSES_PER_NODE = 4  # ssh, its shared connection, its parent process, and a thread
OTHERS = 128  # other files and processes


class Grants(NamedTuple):
    """files: open files allowed for one process. processes: processes allowed for the user. room: how many more
    processes and threads the control group allows. None means no limit.
    """

    files: int | None
    processes: int | None
    room: int | None


def needed(nodes: int) -> Grants:
    processes = PROCESSES_PER_NODE * nodes
    return Grants(FILES_PER_NODE * nodes + OTHERS, processes + OTHERS, processes)


def judge(granted: Grants, nodes: int) -> list[Finding]:
    """Return a finding with a fix for each limit that is too low."""
    needs = needed(nodes)
    fixes = (
        ("open files", "Raise the limit with", f"ulimit -n {needs.files}"),
        ("processes of one user", "Raise the limit with", f"ulimit -u {needs.processes}"),
        ("more processes and threads", "Raise pids.max of the control group on the controller", ""),
    )
    return [
        GRANTED.fail(
            "controller",
            f"a launch on {nodes} nodes needs {need} {what} on the controller, but the limit is {grant}",
            fix=fix,
            command=command,
        )
        for need, grant, (what, fix, command) in zip(needs, granted, fixes, strict=True)
        if need is not None and grant is not None and grant < need
    ]
