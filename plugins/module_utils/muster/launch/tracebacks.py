"""Find the exception that ended a rank in the rank's output, and determine whether the exit of a peer caused the
exception.
"""

from __future__ import annotations

import re
from typing import Any

# Messages of a rank whose *peer* ended or was stopped, which only torch's own libraries print: Gloo of torch 2.13
# (recorded in tests/unit/launch), torch's c10d store, NCCL 2.2x, nccl2 of torch 2.15 (read).
CASCADE = re.compile(
    r"gloo/transport/tcp"
    r"|ncclRemoteError|remote process exited|Watchdog caught collective operation timeout"
    r"|timeout - (?:timeout watchdog|collective operation)|NCCL operation (?:timed out|failed)"
    r"|NCCL communicator was aborted after a previous error|Work timed out during finalize"
    r"|(?:NCCL \w+ failed|Failed to initialize NCCL communicator) timed out after"
    r"|DistNetworkError|DistStoreError|Rendezvous(Connection|Timeout|Closed)Error"
    r"|The client socket has timed out|Timed out initializing process group in store based barrier"
    r"|retrieving ncclUniqueId from \[\d+\] via c10d key-value store"
    r"|Application timeout caused pair closure|Timed out waiting \d+ms for (recv|send)"
    r"|failed to recv, got 0 bytes|recvValue failed|sendBytes failed|failed to pass monitoredBarrier"
    r"|SignalException: Process \d+ got signal: 15"
)
# General network errors. They concern a peer only if raised in torch's communication. Otherwise a database or download
# of the script may have failed, which is the rank's own failure.
CONNECTION = re.compile(r"[Cc]onnection (closed|reset|refused|aborted|abort)|Broken pipe")
TALKING = re.compile(r"torch/(distributed|autograd|nn/parallel)/")
# Messages of these libraries on a local fault: a port in use, a missing interface, no space in /dev/shm, ranks with
# different collectives.
OWN_FAULT = re.compile(r"EADDRINUSE|enforce fail at|No space left on device|shared memory segment")
RANK_PREFIX = re.compile(r"^\[rank\d+\]: ?", re.MULTILINE)
# torch's hook prefixes each line of an uncaught exception with the rank; "[rank0]:[W..." is a log line.
UNCAUGHT_LINE = re.compile(r"^\[rank\d+\]: (.*)$")
HEADING = "Traceback (most recent call last):"
TRACEBACK_START = re.compile(rf"^(  \+ Exception Group )?{re.escape(HEADING)}$")
SYNTAX_ERROR_START = re.compile(r'^  File ".+", line \d+$')
CHAIN = re.compile(
    r"^(The above exception was the direct cause of the following exception"
    r"|During handling of the above exception, another exception occurred):$",
    re.MULTILINE,
)
GROUP_LINE = re.compile(r"^  [|+] ?", re.MULTILINE)
FRAME = re.compile(r'^  File "(?P<file>.+)", line \d+', re.MULTILINE)
# Lines that may follow a traceback and are not part of its message.
AFTER_TRACEBACK = re.compile(
    r"^(Exception ignored|Exception in thread|Fatal Python error|terminate called|\[?(rank\d+\]:)?\[?[WEIF]\d{4} "
    r"|\S+:\d+: \w*Warning: )"
)
MESSAGE_LINES = 20  # of one exception's message, shown
QUOTED_LINES = 200  # of a message that quotes the traceback of another process, such as a data loader's worker
LINE_LENGTH = 400  # of one exception in a summary


def last_traceback(text: str) -> str:
    """Return the last Python traceback in a log, including chained exceptions; '' if there is none.

    An uncaught exception is preferred, because logged exceptions and exceptions in destructors and threads do not end a
    rank.
    """
    return uncaught_traceback(text) or traceback_in(RANK_PREFIX.sub("", text).splitlines())


def uncaught_traceback(text: str) -> str:
    """Return the exception that ended a rank, as marked by torch's hook (after init_process_group); '' if there is
    none.
    """
    lines = text.splitlines()
    marked = [index for index, line in enumerate(lines) if UNCAUGHT_LINE.match(line)]
    if not marked:
        return ""
    # Empty lines have no mark and do not end the traceback; other lines in between come from other threads.
    block = lines[marked[0] : marked[-1] + 1]
    return traceback_in([RANK_PREFIX.sub("", line) or " " for line in block if not line or UNCAUGHT_LINE.match(line)])


def marked_lines(text: str, rank: int) -> str:
    """Return the lines of a shared log that torch's hook has marked with this rank."""
    mark = f"[rank{rank}]: "
    return "".join(f"{line}\n" for line in text.splitlines() if line.startswith(mark))


def traceback_in(lines: list[str]) -> str:
    starts = [index for index, line in enumerate(lines) if TRACEBACK_START.match(line)]
    before = {index: lines[index - 1] if index else "" for index in starts}
    fatal = [index for index in starts if not before[index].startswith(("Exception ignored", "Exception in thread"))]
    threads = [index for index in starts if before[index].startswith("Exception in thread")]
    begun = fatal or threads or [index for index, line in enumerate(lines) if SYNTAX_ERROR_START.match(line)]
    if not begun:
        return ""
    end = end_of_traceback(lines, begun[-1])
    start = begun.pop()
    while begun and any(CHAIN.match(line) for line in lines[max(start - 2, 0) : start]):
        start = begun.pop()
    return "\n".join(line.rstrip() for line in lines[start:end]).rstrip()


def ends_with_traceback(stderr: str) -> bool:
    lines = (line.rstrip() for line in RANK_PREFIX.sub("", stderr).splitlines())
    return "\n".join(lines).rstrip().endswith(last_traceback(stderr) or "\0")


def end_of_traceback(lines: list[str], start: int) -> int:
    """Return the index of the line after a traceback, which consists of indented frames and the exception with its
    message.

    A message can have several lines. An empty line ends the message, because nothing else separates it from the rank's
    next output.
    """
    end = start + 1
    while end < len(lines) and (lines[end].startswith(" ") or not lines[end]):
        end += 1
    most = MESSAGE_LINES
    for length, line in enumerate(lines[end:]):
        if length and (not line or AFTER_TRACEBACK.match(line) or TRACEBACK_START.match(line) or length >= most):
            return end + length
        if line.endswith(HEADING):
            most = QUOTED_LINES
    return len(lines)


def chained(traceback: str) -> list[tuple[str, str]]:
    """Return (file that raised the exception, message) for each exception of a chain, in the order in which they were
    raised.
    """
    found = []
    for part in CHAIN.split(traceback)[::2]:
        text = part.strip("\n")
        if text.startswith("  + "):
            text = GROUP_LINE.sub("", text)
        lines = text.splitlines()
        said = next((i for i, line in enumerate(lines) if line[:1].strip() and not line.endswith(HEADING)), len(lines))
        frames = FRAME.findall("\n".join(lines[:said]))
        found.append((frames[-1] if frames else "", "\n".join(lines[said:])))
    return found


def is_cascade(traceback: str) -> bool:
    """Return whether the exit of a peer caused the exception. Only the first exception of a chain is considered."""
    file, said = chained(traceback)[0]
    if OWN_FAULT.search(said):
        return False
    return bool(CASCADE.search(said) or (CONNECTION.search(said) and TALKING.search(file)))


def exception_line(traceback: str) -> str:
    """Summarize a traceback in one line; '' if there is no traceback.

    For a chain, this is the last exception, which has the most context. If the last exception occurred only
    in the cleanup after an exception of the rank itself, the earlier exception is used.
    """
    if not traceback.strip():
        return ""
    said = [message for _, message in chained(traceback)]
    if not is_cascade(traceback):
        said = [message for message in said if not CASCADE.search(message) or OWN_FAULT.search(message)] or said
    inner = said[-1].rpartition(HEADING + "\n")[2]  # of a worker process, quoted in the message
    lines = [line.strip() for line in inner.splitlines() if line[:1].strip() or line.startswith("\t")]
    if not lines:
        return ""
    line = lines[0]
    if line.endswith(":") and len(lines) > 1 and lines[1][:1].isalnum():
        line += f" {lines[1]}"
    return line if len(line) <= LINE_LENGTH else f"{line[: LINE_LENGTH - 3]}..."


def fatal_error(stderr: str) -> str:
    """Return the output of Python's faulthandler or of C++ for a process that was ended by a signal; '' if there is
    none.
    """
    begun = [stderr.rfind(words) for words in ("terminate called ", "Fatal Python error: ")]
    start = min((place for place in begun if place >= 0), default=-1)
    return "" if start < 0 else "\n".join(stderr[start:].partition("\nExtension modules:")[0].strip().splitlines()[:40])


def recorded_traceback(error: Any) -> str:
    """Return the traceback in torch's error.json, which exists only with @record; '' if it is not usable."""
    message = error.get("message") if isinstance(error, dict) else None
    if isinstance(message, str):
        return message
    if not isinstance(message, dict):
        return ""
    stack = (message.get("extraInfo") or {}).get("py_callstack")
    return stack.strip() if isinstance(stack, str) else str(message.get("message", ""))
