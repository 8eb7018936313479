"""Causes related to an item that is missing on one node: a file, permission, package, library or environment variable.

The error of the rank shows what is missing, so that the line alone makes the cause likely. For a path, a check on all
nodes confirms it: that other ranks did not report the error does not show that their nodes have the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...launch.endings import Ending
from ...verdict.commands import OnNode, playbook
from ...verdict.words import few
from ..model import Cause, CausePlace, Question, no, not_looked, yes
from ..questions import probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..case import LaunchCase
    from ..model import CauseAnswer, Places, Symptom


def nodes_without(group: str) -> Places:
    """Yield each node where a rank ended with an error that names the missing item. group: the regex group that matches
    the name of the item."""

    def places(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
        del case
        return (CausePlace(one.node, what=one.about.get(group, one.line)) for one in by if one.node and one.final)

    return places


def missed_there_only(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """Check that ranks on this node failed because the item is missing, while ranks on another node did not."""
    lacked = {
        (one.node, one.rank): one
        for one in case.all_failures
        if not one.cascade and (place.what in one.summary or place.what in one.traceback)
    }
    here = [one for (node, _), one in lacked.items() if node == place.node]
    if not here:
        return no(f"no rank on {place.node} failed because of {place.what}")
    answered = [name for name, end in case.node_ends.items() if end["reached"] and not end["lost"]]
    others = [name for name in answered if name != place.node and not any(node == name for node, _ in lacked)]
    if not others:
        return no("every node reported the same error") if len(case.nodes) > 1 else no("the launch has no other node")
    return yes(here[0].summary, f"last output of {here[0].where}; {others[0]} did not report this error", here[0].when)


def lacks(access: str, says: str) -> Callable[[LaunchCase, CausePlace], CauseAnswer]:
    """Return a function that checks whether the launch user lacks this access (letters as in evidence.py) to a path."""

    def look(case: LaunchCase, place: CausePlace) -> CauseAnswer:
        known = {name: seen[place.what] for name, seen in case.seen.get("paths", {}).items() if place.what in seen}
        if place.node not in known:
            return not_looked(f"{place.what} was not checked on {place.node}")
        missing = set(access) - set(known[place.node])
        if not missing:
            return not_looked(f"{place.what} {says} on {place.node} now")
        others = [name for name, seen in known.items() if missing & set(seen)]
        where = f"on {few(others)}, but not on {place.node}" if others else f"on none of {few(list(known))}"
        return yes(f"{place.what} {says} {where}", f"access of the launch user on {few(list(known))}")

    return look


def variable_is_not_set(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    record = case.seen["start"].get(place.node) or case.seen["end"].get(place.node)
    if record is None or record["program"] is None:
        return not_looked(case.why_not(place.node, "program"))
    if place.what in record["program"]["environment"]:
        return no(f"{place.what} is set on {place.node}", f"launch environment on {place.node}")
    with_it = [name for name in case.nodes if has_variable(case, name, place.what)]
    elsewhere = f", but is set on {with_it[0]}" if with_it else ""
    return yes(f"{place.what} is not set on {place.node}{elsewhere}", "launch environment")


def has_variable(case: LaunchCase, node: str, name: str) -> bool:
    record = case.seen["start"].get(node)
    return record is not None and record["program"] is not None and name in record["program"]["environment"]


def could_not_begin(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    end = case.node_ends[place.node]
    if end["reason"] == "exec":
        return yes(end["error"] or "the launcher could not be run", f"launch unit on {place.node}", end["ended_at"])
    return no("the launcher was started", f"log of {place.node}" if end["log"] else "")


def nodes_that_could_not(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    told = [CausePlace(one.node, what=one.about.get("name", "")) for one in by if one.id == NOT_FOUND and one.node]
    ended = [CausePlace(one.node) for one in case.all_failures if one.ending is Ending.AGENT and one.rank is None]
    return iter(told or ended)


def refused_the_options(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    for name in [place.node] if place.node else case.nodes:
        end = case.node_ends[name]
        codes = [one["code"] for one in case.seen["ranks"] if one["node"] == name]
        if 2 in (end["code"], *codes):  # argparse's own code
            return yes(place.what, f"last output on {name}", end["ended_at"])
    return no("no process exited with code 2 (invalid options)")


def where_refused(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    nodes = {one.node for one in by if one.node}
    for one in by:
        if one.node:
            yield CausePlace("" if len(nodes) == len(case.nodes) else one.node, what=one.line)


ONLY_THERE = Question(
    "rank.missed_there_only",
    "did ranks on {node}, but not on other nodes, fail because of {what}?",
    missed_there_only,
    by_words=True,
)
ABSENT = Question("path.exists", "does {what} not exist on {node}?", lacks("e", "exists"))
DENIED = Question(
    "path.access", "can the launch user not use {what} on {node}?", lacks("erw", "can be read and written")
)
NOT_SET = Question("node.variable_missing", "is the environment variable {what} unset on {node}?", variable_is_not_set)
NOT_BEGUN = Question("launcher.not_begun", "did starting the launcher on {node} fail?", could_not_begin)
WRONG_OPTIONS = Question("launcher.options", "did a program on {node} reject its options?", refused_the_options)
NOT_FOUND = "shell.command_missing"
MISSING_FILE = ("python.file_missing", "python.script_missing", "shell.file_missing")
PACKAGES_DIFFER = probe("torch.packages", "do the packages on {node} differ from the locked versions?")

CAUSES = (
    Cause(
        "process.missing.file",
        scope="node",
        says="{what} is missing on {node}",
        fix="Copy the file to the same path on all nodes, or use a path on shared storage. Check the path",
        command=OnNode("ls -ld {path}"),
        symptoms=MISSING_FILE,
        places=nodes_without("path"),
        confirm=(ABSENT, ONLY_THERE),
        decisive=MISSING_FILE,
    ),
    Cause(
        "process.missing.permission",
        scope="node",
        says="the launch user cannot read or write {what} on {node}",
        fix="Set the same owner and mode as on the other nodes. Check the path",
        command=OnNode("ls -ld {path}"),
        symptoms=("python.permission",),
        places=nodes_without("path"),
        confirm=(DENIED, ONLY_THERE),
        decisive=("python.permission",),
    ),
    Cause(
        "process.missing.package",
        scope="node",
        says="the package {what} is missing from the environment of {node}",
        fix="Install the same environment on all nodes",
        command=playbook("site.yml", tags="pytorch"),
        symptoms=("python.module_missing", "python.package_wanted"),
        places=nodes_without("name"),
        confirm=(ONLY_THERE,),
        support=(PACKAGES_DIFFER,),
        decisive=("python.module_missing",),
    ),
    Cause(
        "process.missing.library",
        scope="node",
        says="the library {what} is missing on {node}",
        fix="Install the package that provides the library, or set LD_LIBRARY_PATH as on the other nodes",
        command=OnNode("ldconfig -p"),
        symptoms=("python.library_missing",),
        places=nodes_without("name"),
        confirm=(ONLY_THERE,),
        decisive=("python.library_missing",),
    ),
    Cause(
        "process.missing.variable",
        scope="node",
        says="the environment variable {what} is not set on {node}",
        fix="Set the variable in launch_env instead of in a login file on one node",
        symptoms=("python.variable_missing",),
        places=nodes_without("name"),
        confirm=(NOT_SET,),
    ),
    Cause(
        "process.missing.launcher",
        scope="node",
        says="the launcher could not be executed on {node} ({what})",
        fix="Install the same environment on all nodes",
        command=playbook("site.yml", tags="pytorch"),
        symptoms=("agent.ended", "launch.start", NOT_FOUND),
        places=nodes_that_could_not,
        confirm=(NOT_BEGUN,),
        decisive=(NOT_FOUND,),
        instead_of=("process.launcher",),
    ),
    Cause(
        "process.options",
        scope="config",
        says="a program rejected its options: {what}",
        fix="Correct the options of the launch",
        symptoms=("python.usage",),
        places=where_refused,
        confirm=(WRONG_OPTIONS,),
        decisive=("python.usage",),
        instead_of=("process.launcher",),
    ),
)
