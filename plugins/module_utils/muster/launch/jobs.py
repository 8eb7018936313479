"""Merge the launches reported by the nodes of a cluster into one list, and validate plans that nodes have stored.

The launch's user might have written a node's report. Only valid fields are used, and long values are shortened.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from ..verdict.commands import playbook
from ..verdict.reading import Limit, read_one
from ..verdict.words import age, few, plural
from . import launchers
from .answers import is_local, of_ranks
from .endings import ASKED, EXIT, NODE_WORDS
from .failure import NodeReport, first_failure
from .fetched import problems_of
from .messages import MOST_PART, MOST_RANKS, ErrorFile, Number, RankState, Result
from .unit import LAUNCH_UNIT, is_launch_id

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from .failure import Failure


# ---------------------------------------------------------------- the first failure

# The last output of the rank that failed first, for the list of launches. The rules are those of the supervisor,
# applied to the data that every node keeps.

Ranks = Annotated[list[int], Limit(most=MOST_RANKS, whole=True)]
LogEnd = Annotated[str, Limit(most=MOST_PART, raw=True)]


class LastWords(TypedDict):
    """The data that a node keeps about a finished launch. stderr: end of each rank's stderr, by local rank."""

    result: Result | None
    ranks: Annotated[list[RankState], Limit(most=MOST_RANKS)]
    errors: Annotated[dict[str, ErrorFile], Limit(most=MOST_RANKS)]
    agent: LogEnd
    stderr: Annotated[dict[str, LogEnd], Limit(most=MOST_RANKS)]


def first(
    here: Mapping[str, Mapping[str, Any]], answers: Mapping[str, Mapping[str, Any]]
) -> tuple[Failure | None, str]:
    """Return the first failure, and the end of the stderr of the rank that failed first.

    here: each node's report on the launch.
    """
    found = {name: report for name, one in here.items() if (report := report_of(name, one, answers[name]))}
    # A node that ended the launch reports why; stopped parts on the other nodes are no failures then.
    stopped = any(one.get("why") for one in here.values())
    failure, _ = first_failure(list(found.values()), float("-inf") if stopped else float("inf"))
    if failure is None or failure.local_rank is None:
        return failure, ""
    return failure, found[failure.node].said_by(failure.local_rank)


def report_of(node: str, one: Mapping[str, Any], answer: Mapping[str, Any]) -> NodeReport | None:
    """Return the usable part of a node's report; None if the report has no data about the failure."""
    failed, ranks = one.get("failed"), read_one(Ranks, one.get("ranks"))
    if not isinstance(failed, dict) or not ranks:
        return None
    last, _ = of_ranks(LastWords, {**failed, "result": one.get("result")}, ranks)
    received = read_one(Number, answer.get("received")) or 0.0
    clock = read_one(Number, answer.get("clock"))
    return NodeReport(
        node,
        last_answer=received,
        clock_offset=0.0 if clock is None else clock - received,
        ended=last["result"],
        ranks=last["ranks"],
        first_rank=ranks[0],
        errors=last["errors"],
        agent_log=last["agent"],
        stderr={local: text for local, text in last["stderr"].items() if is_local(local, ranks) and text},
        launcher=launchers.spoken(str(one.get("launcher") or launchers.TORCHRUN.name)),
    )


MOST = 100  # launches of one node
MOST_NODES = 1024
MOST_TEXT = 200
STATES = ("running", "ending", "waiting", "starting", "ended", "gone")
GIB = 1024


@dataclass
class Job:
    """A launch. here: each node's report on it."""

    launch_id: str
    user: str
    own: bool
    here: dict[str, dict[str, Any]] = field(default_factory=dict)

    def first(self, name: str, kind: type) -> Any:
        """Return the value from the first node that reports one."""
        return next((one[name] for one in self.here.values() if isinstance(one.get(name), kind) and one[name]), None)

    @property
    def over(self) -> bool:
        return all(one.get("over") is True for one in self.here.values())

    @property
    def state(self) -> str:
        if self.over:
            return self.end
        said = {str(one.get("state")) for one in self.here.values() if one.get("over") is not True}
        state = next((word for word in STATES if word in said), "running")
        ended = [node for node, one in self.here.items() if one.get("over") is True]
        return f"{state}, but ended on {few(ended)}" if ended else state

    @property
    def end(self) -> str:
        why = str(self.first("why", str) or "")
        results = [one["result"] for one in self.here.values() if isinstance(one.get("result"), dict)]
        reasons = {str(one.get("reason")) for one in results}
        if why.startswith("finished") or (
            results and all((one.get("reason"), one.get("code")) == (EXIT, 0) for one in results)
        ):
            return "finished"
        if ASKED in reasons or why.startswith("interrupted"):
            return "stopped by a user"
        if "limit" in reasons:
            return "reached its time limit"
        if "lease" in reasons:
            return f"failed: {NODE_WORDS['lease'].summary}"
        if why or results:
            return f"failed{why.removeprefix('failed') if why.startswith('failed') else ''}"[:MOST_TEXT]
        return "gone, outcome unknown"


def merge(answers: Mapping[str, Mapping[str, Any]]) -> list[Job]:
    """Return the launches, newest last. answers: the unvalidated answer of each node."""
    found: dict[tuple[str, bool, str], Job] = {}
    for node, answer in answers.items():
        given = answer.get("launches")
        for one in given[:MOST] if isinstance(given, list) else []:
            if isinstance(one, dict) and is_launch_id(one.get("launch_id")):
                user, own = str(one.get("user") or "")[:MOST_TEXT], one.get("manager") == "user"
                key = (one["launch_id"], own, user)
                found.setdefault(key, Job(key[0], user, own)).here[node] = one
    return [found[key] for key in sorted(found)]


def table(jobs: Sequence[Job], answers: Mapping[str, Mapping[str, Any]], most: int) -> list[str]:
    """Return one line for each launch, followed by the last `most` lines of its output.

    For a failed launch, these are lines of the rank that failed first.
    """
    lines = []
    for job in jobs:
        parts = [job.launch_id, job.state, who(job), where(job), gpus(job, answers), since(job, answers)]
        lines.append("  ".join(part for part in parts if part))
        lines += (first_lines(job, answers, most) if job.over and most else []) or last_lines(job)
    left_out = sum(one["left_out"] for one in answers.values() if isinstance(one.get("left_out"), int))
    if left_out:
        lines.append(f"... and {left_out} more (not checked within the time limit)")
    return lines or ["No launch."]


def outcome(jobs: Sequence[Job], answering: Collection[str], silent: Collection[str]) -> str:
    """Return the number of running launches on the nodes that responded, and a command to follow the newest one."""
    running = [job for job in jobs if not job.over]
    one = len(running) == 1
    number = f"{len(running) or 'no'} running launch{'' if one else 'es'} on {plural(len(answering), 'node')}"
    unheard = f", and {few([*silent])} did not respond" if silent else ""
    if not running:
        return number + unheard
    follow = playbook("playbooks/jobs.yml", jobs_logs=running[-1].launch_id)
    return f"{number}{unheard}; to follow {'it' if one else 'the newest'}, run: {follow}"


def who(job: Job) -> str:
    by = job.first("by", str)
    own = f"user launch of {job.user}" if job.own else job.user or "?"
    return f"{own} (by {by[:MOST_TEXT]})" if by else own


def where(job: Job) -> str:
    nodes = job.first("nodes", list) or list(job.here)
    ranks = job.first("world_size", int)
    what = job.first("what", str)
    of = attempt_of(job)
    text = few([str(node)[:MOST_TEXT] for node in nodes[:MOST_NODES]])
    return f"{what[:MOST_TEXT] + ' ' if what else ''}on {text}" + (f" ({plural(ranks, 'rank')})" if ranks else "") + of


def attempt_of(job: Job) -> str:
    """Return the number of the attempt and the node that runs the watcher; "" for a launch without a watcher."""
    number, watched = job.first("attempt", int), job.first("watched", dict) or {}
    first, node = watched.get("launch_id"), str(watched.get("node"))[:MOST_TEXT]
    if not number or not is_launch_id(first):
        return ""
    return f", attempt {number}{f' of {first}' if number > 1 else ''}, watched on {node}"


def gpus(job: Job, answers: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the mean utilization of the launch's GPUs, and the memory use of the GPU with the least free memory."""
    if job.over:
        return ""
    seen, count, why = [], 0, ""
    for node, one in job.here.items():
        known = answers[node].get("gpus")
        known = known if isinstance(known, dict) else {}
        why = why or str(known.get("why") or "")
        seats = one.get("seats")
        numbers = (
            [seat[4:] for seat in seats if isinstance(seat, str) and seat[:4] == "gpu-"]
            if isinstance(seats, list)
            else []
        )
        count += len(numbers)
        seen += [known[number] for number in numbers if isinstance(known.get(number), dict)]
    if not count:
        return "no GPUs"
    busy = [one["busy"] for one in seen if isinstance(one.get("busy"), int)]
    full = [
        (one["used"], one["total"])
        for one in seen
        if isinstance(one.get("used"), int) and isinstance(one.get("total"), int)
    ]
    text = plural(count, "GPU")
    if busy:
        text += f" {sum(busy) / len(busy):.0f} % utilization"
    if full:
        used, total = max(full)
        text += f", {used / GIB:.0f} of {total / GIB:.0f} GiB"
    return text if busy or full else f"{text} ({why[:MOST_TEXT] or 'utilization unknown'})"


def since(job: Job, answers: Mapping[str, Mapping[str, Any]]) -> str:
    """Return how long the launch has been running, or how long ago it ended, according to the clock of one of its
    nodes.
    """
    running = [one["seconds"] for one in job.here.values() if isinstance(one.get("seconds"), (int, float))]
    if running:
        return f"for {age(max(running))}"
    ended = [
        answers[node]["clock"] - one["ended_at"]
        for node, one in job.here.items()
        if isinstance(one.get("ended_at"), (int, float)) and isinstance(answers[node].get("clock"), (int, float))
    ]
    return f"{age(max(0.0, min(ended)))} ago" if ended else ""


def first_lines(job: Job, answers: Mapping[str, Mapping[str, Any]], most: int) -> list[str]:
    """Return the failure and the last lines of the rank that failed first.

    These are preferred, because the newest log is often the launcher's, which lists only ranks of its own node.
    """
    failure, said = first(job.here, answers) if job.end.startswith("failed") else (None, "")
    if failure is None or failure.rank is None:
        return []
    lines = [line.rstrip()[:MOST_TEXT] for line in re.split(r"[\r\n]+", said) if line.strip()]
    key = f"{failure.node} {failure.local_rank}/stderr"
    return [
        f"    {failure.where} failed first: {failure.summary[:MOST_TEXT]}",
        *(f"    {key}: {line}" for line in lines[-most:]),
    ]


def last_lines(job: Job) -> list[str]:
    """Return the last lines of output from the first node in the plan that has any.

    This is usually the head node with rank 0.
    """
    order = [str(node) for node in job.first("nodes", list) or []]
    for node in sorted(job.here, key=lambda name: order.index(name) if name in order else len(order)):
        lines, log = job.here[node].get("lines"), job.here[node].get("log")
        if isinstance(lines, list) and lines:
            return [f"    {node} {str(log)[:20]}: {str(line)[:MOST_TEXT]}" for line in lines[:20]]
    return []


# ---------------------------------------------------------------- plans that nodes have kept


def usable(plan: Any, launch_id: str, run_dir: str, nodes: Sequence[str], owner: str = "") -> str:
    """Return why a plan that a node has stored is not usable; "" if it is usable.

    run_dir: the folder in which the plan was found. nodes: nodes of the inventory. owner: owner of that folder, "" for
    administrators. The owner can write any user name into the plan, and root would act as that user.
    """
    entries = plan.get("nodes") if isinstance(plan, dict) else None
    if not isinstance(entries, list) or not entries or len(entries) > MOST_NODES:
        return "not a launch plan"
    if not is_launch_id(launch_id):
        return "invalid launch id"
    if plan.get("launch_id") != launch_id or plan.get("manager", "system") not in ("system", "user"):
        return "the plan belongs to another launch"
    own = plan.get("manager", "system") == "user"
    if own != bool(owner) or (own and plan.get("user") != owner):
        return "the plan is in the folder of another user"
    texts = [plan.get(name) for name in ("cluster", "user", "backend", "master_addr")]
    numbers = [plan.get(name) for name in ("master_port", "world_size")]
    if not all(map(_is_text, texts)) or not all(map(_is_number, numbers)) or not _is_table(plan.get("given")):
        return "the plan is incomplete"
    if not all(_is_entry(entry, launch_id, run_dir) for entry in entries):
        return "the plan has an invalid entry for a node"
    missing = [entry["node"] for entry in entries if entry["node"] not in nodes]
    if missing:
        return f"some of its nodes are not in gpu_nodes: {few(missing)}"
    watched = plan.get("watched")
    if watched is not None and not (
        isinstance(watched, dict) and watched.get("node") in nodes and is_launch_id(watched.get("launch_id"))
    ):
        return "the watcher's node is not in the inventory"
    fetch = plan.get("fetch")
    if fetch is not None and not (
        isinstance(fetch, dict)
        and isinstance(fetch.get("patterns"), list)
        and all(map(_is_text, fetch["patterns"]))
        and not problems_of(fetch["patterns"])
        and _is_number(fetch.get("most"))
        and isinstance(fetch.get("folder"), str)
    ):
        return "the plan has invalid fetch options"
    return ""


def _is_entry(entry: Any, launch_id: str, run_dir: str) -> bool:
    if not isinstance(entry, dict) or not all(map(_is_text, (entry.get("node"), entry.get("work_dir")))):
        return False
    ranks, argv = entry.get("ranks"), entry.get("argv")
    return (
        "/" not in entry["node"]
        and entry.get("run_dir") == run_dir
        and entry.get("unit") == LAUNCH_UNIT.format(launch_id)
        and isinstance(ranks, list)
        and 0 < len(ranks) <= MOST_NODES
        and all(map(_is_number, ranks))
        and ranks == list(range(ranks[0], ranks[0] + len(ranks)))
        and entry.get("nproc") == len(ranks)
        and isinstance(argv, list)
        and all(isinstance(word, str) for word in argv)
        and _is_table(entry.get("env"))
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 4096 and value.isprintable()


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(one, str) for pair in value.items() for one in pair)
