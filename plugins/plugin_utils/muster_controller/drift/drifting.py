"""Check nodes for drift: run the steps in check mode, compare with the last installation, and search the logs.

Only planned() runs the steps, as site.yml in check mode.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible.errors import AnsibleActionFail

from muster.drift import installed, judge, plans
from muster.drift.judge import Drifted, Looked
from muster.drift.model import History, InstallationRecord, PresentState
from muster.drift.origin import origin
from muster.inspect.facts import next_boot_facts
from muster.inspect.floors import TABLE, below, floors_of
from muster.nvidia_driver.family import library_version
from muster.nvidia_driver.next_boot import NEXT_BOOT, findings, next_boot
from muster.verdict.reading import NO_USE, UnusableError, read, read_one
from muster_controller.playbook.node_error import one_line
from muster_controller.playbook.variables import project_root

from .installed import ask_all, links_of, requests
from .steps_run import run_steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from muster.drift.model import DriftDifference, Taken
    from muster.inspect.floors import SecurityFloor
    from muster.verdict.finding import Finding, Skipped
    from muster_controller.nodes.asking import NodeAnswer
    from muster_controller.playbook.action import ControllerAction

Json = dict[str, Any]

# The steps that change nodes, in order.
TAGS = ("baseline", "network", "gpu_stack", "pytorch")
BACK = 30 * 86400.0  # seconds of logs to search
KINDS = {"package": "packages", "file": "paths", "unit": "units", "part": "parts"}


@dataclass
class DriftReport:
    """drifted: the differences, sorted by node and check. nodes: for each node, what was not checked. records: the
    records of the last installation."""

    drifted: list[Drifted]
    nodes: dict[str, Looked]
    records: dict[str, InstallationRecord]

    def accepted(self, nodes: Sequence[str]) -> DriftReport:
        """Return the report, updated after these nodes have recorded their current state as the installed state."""
        left = [
            one
            for one in self.drifted
            if one.difference.node not in nodes or one.difference.check not in judge.OF_THE_RECORD
        ]
        looked = {name: one._replace(no_record="") if name in nodes else one for name, one in self.nodes.items()}
        return DriftReport(left, looked, self.records)


class Drifting:
    """folder: the artifacts folder of the run."""

    def __init__(self, action: ControllerAction, folder: Path) -> None:
        self.action, self.folder = action, folder

    def look(self, nodes: Sequence[str]) -> DriftReport:
        asked = requests(self.action.task_vars, self.action._templar, self.action._loader, nodes)
        with ThreadPoolExecutor(1) as aside:
            coming = aside.submit(ask_all, self.action, "look", asked)
            said, stopped = self.planned(nodes)
            answers = coming.result()
        down = plans.unreachable(said)
        down |= {node: answer.error for node, answer in answers.items() if answer.error}
        seen: dict[str, DriftAnswer] = {}
        for node, answer in answers.items():
            try:
                seen.update({} if node in down else {node: answer_of(answer.data)})
            except UnusableError as problem:
                down[node] = f"invalid answer: {problem}"
        records = {node: answer.record for node, answer in seen.items()}
        planned = [one for one in plans.differences(said) if one.node in seen]
        own = [
            one
            for node in seen
            for one in installed.differences(node, seen[node].now, records[node], links_of(asked[node]))
        ]
        found = sorted(
            installed.joined(own, planned),
            key=lambda one: (list(nodes).index(one.node), judge.CHECKS.index(one.check)),
        )
        histories = self.histories(found, asked, seen)
        drifted = [Drifted(one, origin(one, histories.get(one.node, History()))) for one in found]
        looked = {}
        floors = floors_of(self.action._loader.load_from_file(str(project_root() / TABLE)))
        for node in nodes:
            unseen = dict(seen[node].now["unseen"]) if node in seen else {}
            if node in histories:
                unseen |= {f"the log of {name}": why for name, why in histories[node].unseen.items()}
            no_record = "" if records.get(node) else (node in seen and seen[node].why) or "not checked"
            noted = advice(node, seen[node], floors) if node in seen else ()
            where = one_line(down.get(node, ""))
            looked[node] = Looked(where, unseen, no_record, tuple(stopped.get(node, ())), tuple(noted))
        return DriftReport(drifted, looked, records)

    def planned(self, nodes: Sequence[str]) -> tuple[list[Taken], dict[str, list[str]]]:
        """Return the results of the steps, and for each node, the steps that rejected the node and therefore did not
        check it completely.

        After a rejection, the later steps run again on all nodes, because plans depend on other nodes.
        """
        said: list[Taken] = []
        stopped: dict[str, list[str]] = {}
        tags: tuple[str, ...] = TAGS
        names = list(nodes)
        while tags and names:
            ended = run_steps(self.action, tags, ",".join(names), check=True, log=self.folder / "drift.log")
            if not ended.worked:
                raise AnsibleActionFail(f"The steps failed in check mode: {ended.why} ({self.folder / 'drift.log'})")
            refused = {node: tag for node, tag in plans.stopped_at(ended.said).items() if tag in TAGS}
            first = min((TAGS.index(tag) for tag in refused.values()), default=len(TAGS))
            for node, tag in refused.items():
                if TAGS.index(tag) == first:
                    stopped.setdefault(node, []).append(tag)
            tags = TAGS[first + 1 :]
            said += [one for one in ended.said if plans.TAGS.get(one["role"]) not in tags]
            names = [name for name in names if name not in plans.unreachable(ended.said)]
        return said, stopped

    def histories(
        self, found: Sequence[DriftDifference], asked: Mapping[str, Json], seen: Mapping[str, DriftAnswer]
    ) -> dict[str, History]:
        """Return the histories of the nodes with differences. Sends one request to each node."""
        questions: dict[str, Json] = {}
        for node in dict.fromkeys(one.node for one in found):
            subjects = [each for one in found if one.node == node for each in one.subjects]
            questions[node] = {
                "since": min(seen[node].record.get("at") or time.time(), time.time() - BACK),
                **{name: asked[node][name] for name in ("environment", "named")},
                **{
                    name: list(dict.fromkeys(each.name for each in subjects if each.kind == kind))
                    for kind, name in KINDS.items()
                },
            }
        answers = ask_all(self.action, "history", questions)
        return {node: history_of(answer, seen[node], questions[node]["since"]) for node, answer in answers.items()}


class DriftAnswer(NamedTuple):
    """The answer of a node. record: {} if there is none; why: the reason. boot: data of the next boot, not checked."""

    now: PresentState
    record: InstallationRecord
    why: str
    boot: Any


def answer_of(data: Any) -> DriftAnswer:
    """Return the valid parts. Raises UnusableError."""
    given = data if isinstance(data, dict) else {}
    now, lost = read(PresentState, given.get("now"))
    record, unread = read(InstallationRecord, given.get("record") or {})
    now["unseen"] |= dict.fromkeys((*lost, *(f"{name} in the record" for name in unread)), NO_USE)
    return DriftAnswer(now, record, read_one(str, given.get("why")) or "", given.get("boot"))


def history_of(answer: NodeAnswer, seen: DriftAnswer, since: float) -> History:
    more = {"booted": seen.now["booted"], "since": seen.record.get("at") or since}
    try:
        return (
            read(History, {**answer.data, **more})[0] if not answer.error else History(unseen={"changes": answer.error})
        )
    except (TypeError, UnusableError):
        return History(unseen={"changes": NO_USE})


def advice(node: str, answer: DriftAnswer, floors: Sequence[SecurityFloor]) -> Iterator[Finding | Skipped]:
    """Evaluate the next boot, and compare Muster's packages, the kernel and the firmware with the security floors."""
    now = answer.now
    packages = now.get("packages", {})
    driver = library_version(packages)
    try:
        boot = next_boot_facts(answer.boot)
        yield from [*findings(node, next_boot(boot, driver, boot["secure_boot"], boot["key_enrolled"]))]
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        yield NEXT_BOOT.unknown(node, NO_USE)
    yield from below(node, floors, {**packages, "driver": driver}, now.get("kernel", ""), now.get("firmware", {}))
