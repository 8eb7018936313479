"""What a rank needs and one node lacks: a file, a right, a package, a library, a variable.

That it was not there the rank itself has seen. What has to be proved is that its node differs: other ranks, elsewhere,
came further. Where all ranks miss the same, no node is to blame (process.exception.everywhere).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...launch.endings import Ending
from ...verdict.commands import on_node, playbook
from ..model import Cause, CausePlace, Question, no, not_looked, yes
from ..questions import probe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..case import LaunchCase
    from ..model import CauseAnswer, Places, Symptom

OWN = ("process.exception", "process.exit", "process.launcher.failed")


def nodes_without(group: str) -> Places:
    """Each node whose ranks named the thing in their last words; group: where a text has its name."""

    def places(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
        del case
        return (CausePlace(one.node, what=one.about.get(group, one.line)) for one in by if one.node and one.final)

    return places


def missed_there_only(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """Whether ranks of this node ended for want of it, while some elsewhere did not."""
    lacked = {
        (one.node, one.rank): one
        for one in case.all_failures
        if not one.cascade and (place.what in one.summary or place.what in one.traceback)
    }
    here = [one for (node, _), one in lacked.items() if node == place.node]
    if not here:
        return no(f"no rank of {place.node} ended for want of it")
    answered = [name for name, end in case.node_ends.items() if end["reached"] and not end["lost"]]
    others = [name for name in answered if name != place.node and not any(node == name for node, _ in lacked)]
    if not others:
        return no("it was missed on every node") if len(case.nodes) > 1 else no("there is no other node")
    return yes(here[0].summary, f"last words of {here[0].where}; {others[0]} did not miss it", here[0].when)


def variable_is_not_set(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    record = case.seen["start"].get(place.node) or case.seen["end"].get(place.node)
    if record is None or record["program"] is None:
        return not_looked(case.why_not(place.node, "program"))
    if place.what in record["program"]["environment"]:
        return no(f"{place.what} is set on {place.node}", f"environment of the launch on {place.node}")
    with_it = [name for name in case.nodes if has_variable(case, name, place.what)]
    elsewhere = f"; {with_it[0]} has it" if with_it else ""
    return yes(f"{place.what} is not set on {place.node}{elsewhere}", "environment of the launch")


def has_variable(case: LaunchCase, node: str, name: str) -> bool:
    record = case.seen["start"].get(node)
    return record is not None and record["program"] is not None and name in record["program"]["environment"]


def could_not_begin(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    end = case.node_ends[place.node]
    if end["reason"] == "exec":
        return yes(end["error"] or "it could not be executed", f"the launch's unit on {place.node}", end["ended_at"])
    return no("it was begun")


def nodes_that_could_not(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del by
    return (CausePlace(one.node) for one in case.all_failures if one.ending is Ending.AGENT and one.rank is None)


def refused_the_options(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    for name in [place.node] if place.node else case.nodes:
        end = case.node_ends[name]
        codes = [one["code"] for one in case.seen["ranks"] if one["node"] == name]
        if 2 in (end["code"], *codes):  # argparse's own code
            return yes(place.what, f"last words on {name}", end["ended_at"])
    return no("nothing ended with the code 2, which stands for wrong options")


def where_refused(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    nodes = {one.node for one in by if one.node}
    for one in by:
        if one.node:
            yield CausePlace("" if len(nodes) == len(case.nodes) else one.node, what=one.line)


ONLY_THERE = Question(
    "rank.missed_there_only",
    "did ranks of {node} end for want of {what}, while those of other nodes came further?",
    missed_there_only,
)
NOT_SET = Question("node.variable_missing", "is {what} missing in the environment on {node}?", variable_is_not_set)
NOT_BEGUN = Question("launcher.not_begun", "could the launcher on {node} not be executed?", could_not_begin)
WRONG_OPTIONS = Question("launcher.options", "did a program on {node} refuse its options?", refused_the_options)
PACKAGES_DIFFER = probe("torch.packages", "do the packages on {node} differ from what was locked?")

CAUSES = (
    Cause(
        "process.missing.file",
        group="process",
        scope="node",
        says="{what} is not there on {node}, and ranks of other nodes did not miss it",
        fix="Bring it to the same path on every node, or name a path that all of them share",
        symptoms=("python.file_missing", "python.script_missing"),
        places=nodes_without("path"),
        confirm=(ONLY_THERE,),
        instead_of=OWN,
    ),
    Cause(
        "process.missing.permission",
        group="process",
        scope="node",
        says="the user of the launch may not read or write {what} on {node}, and may on other nodes",
        fix="Give it the same owner and mode as on the other nodes",
        symptoms=("python.permission",),
        places=nodes_without("path"),
        confirm=(ONLY_THERE,),
        instead_of=OWN,
    ),
    Cause(
        "process.missing.package",
        group="process",
        scope="node",
        says="the environment on {node} lacks {what}, and those of other nodes do not",
        fix="Bring all nodes to the same environment",
        command=playbook("site.yml", tags="pytorch"),
        symptoms=("python.module_missing",),
        places=nodes_without("name"),
        confirm=(ONLY_THERE,),
        support=(PACKAGES_DIFFER,),
        instead_of=OWN,
    ),
    Cause(
        "process.missing.library",
        group="process",
        scope="node",
        says="the library {what} is not found on {node}, and is found on other nodes",
        fix="Install its package there, or give LD_LIBRARY_PATH as on the other nodes",
        command=on_node("gpu_nodes", "ldconfig -p"),
        symptoms=("python.library_missing",),
        places=nodes_without("name"),
        confirm=(ONLY_THERE,),
        instead_of=OWN,
    ),
    Cause(
        "process.missing.variable",
        group="process",
        scope="node",
        says="the environment variable {what} is not set on {node}",
        fix="Give it to the launch (launch_env), not to a login of one node",
        symptoms=("python.variable_missing",),
        places=nodes_without("name"),
        confirm=(NOT_SET,),
        instead_of=("process.exception", "process.exception.everywhere"),
    ),
    Cause(
        "process.missing.launcher",
        group="process",
        scope="node",
        says="the launcher could not be executed on {node}",
        fix="Bring all nodes to the same environment",
        command=playbook("site.yml", tags="pytorch"),
        symptoms=("agent.ended", "launch.start"),
        places=nodes_that_could_not,
        confirm=(NOT_BEGUN,),
        instead_of=("process.launcher", "process.launcher.failed"),
    ),
    Cause(
        "process.options",
        group="process",
        scope="config",
        says="a program does not take the options that it was given: {what}",
        fix="Correct the options of the launch",
        symptoms=("python.usage",),
        places=where_refused,
        confirm=(WRONG_OPTIONS,),
        instead_of=("process.exit", "process.launcher", "process.launcher.failed", "process.exception.everywhere"),
    ),
)
