"""What torchrun's own log says of the ranks that it ran."""

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
    """True as soon as torchrun began to end its ranks: it then waits up to 30 s for each before it says why."""
    return AGENT_CLOSES.search(agent_log) is not None


def exit_codes(agent_log: str) -> dict[int, int]:
    """Exit code (negative: signal) by local rank, as torchrun's own output says."""
    found = {int(match["local"]): int(match["code"]) for match in SUMMARY_FAILURE.finditer(agent_log)}
    for match in AGENT_FAILED.finditer(agent_log):
        found[int(match["local"])] = int(match["code"])
    return found


def closed(agent_log: str) -> set[int]:
    """The local ranks that torchrun says it told to end, because another one had failed or it was told itself."""
    told = {match["pid"] for match in CLOSED.finditer(agent_log)}
    ended = (*SUMMARY_FAILURE.finditer(agent_log), *AGENT_FAILED.finditer(agent_log))
    return {int(match["local"]) for match in ended if match["pid"] in told}
