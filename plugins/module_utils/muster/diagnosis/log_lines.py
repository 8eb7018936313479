"""Splits logs into lines by source.

Launchers, schedulers and log collectors put a prefix before each line of a process. A prefix is removed, and the place
that it names is returned with the line. Prefixes can be nested. The formats are those of kubelet (CRI), Docker,
journald and syslog, structured (JSON) loggers, kubectl, mpirun, srun, pdsh, clush, Docker Compose, Ray and SkyPilot.
The prefixes of torch (`[rank3]:`) and NCCL (`host:pid:tid [device]`) name a place too, but they stay.
"""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ..launch.tracebacks import HEADING
from .arguments import is_host

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

# Escape sequences of terminals: colors and cursor (CSI), titles and links (OSC), others of two characters.
ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\-_])")
TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|[+-]\d\d:?\d\d))?"
SYSLOG = r"(?:(?P<host>[\w.-]{1,253}) [\w./@:-]{1,100}?\[(?P<pid>\d{1,10})\]: )?"
ON_TIME = re.compile(rf"{TIME} (?:std(?:out|err) (?P<part>[FP]) |{SYSLOG})")
ON_DATE = re.compile(rf"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? {SYSLOG}")
OF_LOGGER = re.compile(
    r"(?:CRITICAL|DEBUG|ERROR|INFO|WARNING) (?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d \[?[\w./-]{1,100}:\d+\]? ?"
)
OF_TASK = re.compile(r" {0,6}(?P<task>\d{1,6}): ")
OF_NCCL = re.compile(r"(?=(?P<host>[A-Za-z0-9][\w.-]{0,252}):(?P<pid>\d{1,10}):\d+ \[(?P<device>\d{1,3})\] )")
OF_TOOL = re.compile(r"(?:pdsh@[\w.-]+|clush): ")
OF_WORD = re.compile(r"\[?(?P<word>[A-Za-z0-9][\w.-]{0,252})\]?(?:: | *\| )")
IPV4 = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
IN_WORDS = (OF_NCCL, OF_TOOL, OF_WORD)
# The patterns by the first character of a line.
BY_FIRST: dict[str, tuple[re.Pattern[str], ...]] = {
    **dict.fromkeys("0123456789", (ON_TIME, OF_TASK, *IN_WORDS)),
    **dict.fromkeys("JFMASOND", (ON_DATE, *IN_WORDS)),
    " ": (OF_TASK,),
    **dict.fromkeys("CDEIW", (ON_DATE, OF_LOGGER, *IN_WORDS)),
    "[": (
        re.compile(r"(?=\[rank(?P<rank>\d{1,6})\]:)"),
        re.compile(r"\[rank: (?P<rank>\d{1,6})\] "),
        re.compile(r"\[(?:default|trainer|worker)_?(?P<local>\d{1,4})\]: ?"),
        # Before torch 2.1, the watchdog's lines have no other mark.
        re.compile(r"(?=\[[EWIF][^\]]{0,100}ProcessGroup\w+\.cpp:\d+\] \[Rank (?P<rank>\d{1,6})\])"),
        re.compile(
            r"\[(?:[\w.@-]{1,200}@)?\d+,(?:mpirank:)?(?P<task>\d{1,6})(?:,(?P<host>[\w.-]{1,253}))?\]"
            r"<std(?:err|out|diag)>:? ?"
        ),
        re.compile(r"\[pod/(?P<host>[\w.-]{1,253})/[\w.-]{1,253}\] "),
        re.compile(rf"\[{TIME}\] "),
        OF_WORD,
    ),
    "(": (
        # Ray: (Worker pid=7, ip=192.0.2.2); SkyPilot: (worker1, rank=1, pid=7, ip=192.0.2.2)
        re.compile(
            r"\((?=[^()]{0,400}(?:pid|ip|rank)=)[^(),=]{1,100}?(?:, rank=(?P<node_rank>\d{1,4}))?"
            r"(?:,? pid=(?P<pid>\d{1,10}))?(?:, ip=(?P<host>[\w.:-]{1,253}))?\) "
        ),
    ),
}
MOST_PREFIXES = 6
BEFORE_HEADING = re.compile(r"it/s|s/it|[Ee]xception: |[Ee]rror: ")  # a progress bar or the words of a logger
# Keys of structured loggers, with the most specific first.
MESSAGES = ("log", "message", "msg", "MESSAGE", "text", "textPayload")
MORE_MESSAGES = ("exc_info", "exception", "stack_trace", "traceback")
HOSTS = ("hostname", "_HOSTNAME", "host", "node_name", "node", "pod_name", "pod")
RANKS = ("rank", "global_rank")
SAMPLE = 400  # lines
MOST_OF_THEM = 0.9  # share of the lines of a file with a host before them, if the inventory has no such host
LONGEST_LINE = 8000

FIRST, MARKED, LAST = 4_000, 4_000, 16_000  # characters of one source
DIGITS = re.compile(r"\d+")
# Words of errors and of launch arguments: a line with one of them is kept, even if it is in the middle of a log.
CONSPICUOUS = ("rror", "WARN", "ailed", "xception", "imed out", "illed", "enied", "nranks", "MASTER_", "nnodes")


class LineSource(NamedTuple):
    """The source of a line. node: "" if unknown. kind: rank, local, task (a number of srun or mpirun, for a rank or a
    node), pid, device, or "" for a launcher or an unknown process. number: of this kind."""

    node: str
    kind: str = ""
    number: int = 0


class KeptLines:
    """The lines of one source: the first ones, conspicuous ones, and the last ones."""

    def __init__(self) -> None:
        self.shapes: set[str] = set()
        self.first: list[str] = []
        self.marked: list[str] = []
        self.last: deque[str] = deque()
        self.room, self.marks, self.size = FIRST, MARKED, 0

    def add(self, line: str) -> None:
        line = line[:LONGEST_LINE]
        length = len(line) + 1
        if self.room > 0:
            self.first.append(line)
            self.room -= length
            return
        self.last.append(line)
        self.size += length
        while self.size > LAST and len(self.last) > 1:
            old = self.last.popleft()
            self.size -= len(old) + 1
            if self.marks > 0 and any(word in old for word in CONSPICUOUS) and not old.endswith(HEADING):
                if (shape := DIGITS.sub("0", old)) in self.shapes:
                    continue
                self.shapes.add(shape)
                self.marked.append(old)
                self.marks -= len(old) + 1

    @property
    def lines(self) -> list[str]:
        return [*self.first, *self.marked, *self.last]


def unwrapped(text: str, hosts: Collection[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each line of a log without its prefixes, with the values of the prefixes: host, rank, local, task, pid,
    device, node_rank. hosts: names of known nodes, in lower case."""
    lines = (ESCAPE.sub("", text) if "\x1b" in text else text).splitlines()
    hosts = {*hosts, *hosts_before(lines)}
    begun, places = "", dict[str, str]()  # of a line that the container runtime has split
    for line in lines:
        for part in messages(line) if line.startswith("{") else ((line, {}),):
            rest, found = without_prefixes(*part, hosts)
            begun, places = begun + rest, {**found, **places}
            if found.get("part") != "P" or len(begun) > LONGEST_LINE:
                yield begun, places
                begun, places = "", {}
    if begun:
        yield begun, places


def without_prefixes(line: str, found: dict[str, str], hosts: Collection[str]) -> tuple[str, dict[str, str]]:
    for _ in range(MOST_PREFIXES):
        for pattern in BY_FIRST.get(line[:1], IN_WORDS):
            match = pattern.match(line)
            if match and (pattern is not OF_WORD or match["word"].lower() in hosts or IPV4.fullmatch(match["word"])):
                break
        else:
            break
        named = {name: value for name, value in match.groupdict().items() if value is not None}
        found = {**named, **found, **({"host": named["word"]} if "word" in named and "host" not in found else {})}
        if not match.end():
            break
        line = line[match.end() :]
    if line.endswith(HEADING) and BEFORE_HEADING.search(line):
        line = HEADING
    return line, found


def hosts_before(lines: list[str]) -> set[str]:
    """Return the host names of pdsh and similar tools, which stand before nearly all lines of a log."""
    begun = [OF_WORD.match(line) for line in islice((line for line in lines if line), SAMPLE)]
    words = Counter(match["word"].lower() for match in begun if match and re.search(r"\d", match["word"]))
    hosts = {word for word in words if is_host(word) and not word.isdigit()}
    return hosts if sum(words[word] for word in hosts) > MOST_OF_THEM * max(len(begun), 1) else set()


def messages(line: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the lines of the message in a JSON object, with the place that the object names."""
    try:
        one = json.loads(line)
    except (ValueError, RecursionError):
        one = {}
    flat = {**one, **(one["kubernetes"] if isinstance(one.get("kubernetes"), dict) else {})}
    said = next((flat[key] for key in MESSAGES if isinstance(flat.get(key), str)), None)
    if said is None:
        yield line, {}
        return
    host = next((flat[key] for key in HOSTS if isinstance(flat.get(key), str) and is_host(flat[key])), None)
    rank = next((flat[key] for key in RANKS if type(flat.get(key)) is int and 0 <= flat[key] < 10**6), None)
    named = {"host": host, "rank": None if rank is None else str(rank)}
    found = {name: value for name, value in named.items() if value is not None}
    for text in (said, *(flat[key] for key in MORE_MESSAGES if isinstance(flat.get(key), str))):
        for each in text.splitlines():
            yield each, found
