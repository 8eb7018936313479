"""Read the results of ranks from torchrun's own log."""

from __future__ import annotations

import re

AGENT_FAILED = re.compile(
    r"failed \(exitcode: (?P<code>-?\d{1,5})\) local_rank: (?P<local>\d{1,5}) \(pid: (?P<pid>\d+)\)"
)
AGENT_CLOSES = re.compile(r"Sending process \d+ closing signal|failed \(exitcode: ")
CLOSED = re.compile(r"Sending process (?P<pid>\d{1,10}) closing signal")
SUMMARY_FAILURE = re.compile(
    r"rank\s+: \d+ \(local_rank: (?P<local>\d{1,5})\)\s+exitcode\s+: (?P<code>-?\d{1,5}) \(pid: (?P<pid>\d+)\)"
)


def agent_closes(agent_log: str) -> bool:
    """Return whether torchrun has begun to stop its ranks.

    torchrun waits up to 30 s for each rank before it logs the reason.
    """
    return AGENT_CLOSES.search(agent_log) is not None


def exit_codes(agent_log: str) -> dict[int, int]:
    """Return the exit code of each rank in torchrun's output, by local rank. A negative code is a signal number."""
    found = {int(match["local"]): int(match["code"]) for match in SUMMARY_FAILURE.finditer(agent_log)}
    for match in AGENT_FAILED.finditer(agent_log):
        found[int(match["local"])] = int(match["code"])
    return found


def closed(agent_log: str) -> set[int]:
    """Return the local ranks that torchrun stopped because another rank had failed or because torchrun itself was
    stopped.
    """
    told = {match["pid"] for match in CLOSED.finditer(agent_log)}
    ended = (*SUMMARY_FAILURE.finditer(agent_log), *AGENT_FAILED.finditer(agent_log))
    return {int(match["local"]) for match in ended if match["pid"] in told}
