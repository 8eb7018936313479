"""A node, or the controller, cannot be reached any more: the machine, its ssh, the login, or the way between them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...verdict.commands import OnNode
from ...verdict.words import few
from ..model import Cause, CausePlace, Question, no, not_looked, yes
from ..reaching import ends_of, of_checks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..case import LaunchCase
    from ..model import CauseAnswer, Symptom

REFUSED_LOGIN = re.compile(
    r"Permission denied|Too many authentication failures|Host key verification failed|account is (?:locked|expired)"
    r"|REMOTE HOST IDENTIFICATION HAS CHANGED|Authentication failed|no longer valid|Incorrect sudo password"
)
DISK = re.compile(r"No space left on device|Errno 28|Disk quota exceeded|Read-only file system")
UNREACHED = ("net.peer.dropped", "net.peer.unreachable", "net.peer.prohibited")
TOGETHER = 20.0  # seconds within which a controller that is cut off loses all of its nodes
LOST = ("node.lost", "launch.peer", "launch.start")


def nodes_lost(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Those that the controller does not reach. That another node was silent, as parts of a detached launch say, is no
    reason to doubt a node that answers."""
    shown = [one.node for one in by if one.node and one.id in LOST and one.id != "launch.peer"]
    ends = [name for name, end in case.node_ends.items() if end["lost"] or not end["reached"]]
    return (CausePlace(node) for node in dict.fromkeys((*shown, *ends)))


def nowhere(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del case, by
    yield CausePlace()


# ---------------------------------------------------------------- what is asked


def peers_asked(case: LaunchCase, node: str) -> list[str]:
    """The other nodes that have called it since."""
    return [one for one in case.nodes if one != node and case.looked_for("net.peer.unreachable", one)]


def in_vain(case: LaunchCase, node: str) -> list[str]:
    """What peers found when they called it."""
    return [f"{one['id']}: {one['summary']}" for one in of_checks(case, UNREACHED) if node in ends_of(one)]


def why_not_asked(node: str) -> CauseAnswer:
    return not_looked(f"whether the other nodes reach {node} was not looked at")


def was_called(case: LaunchCase, node: str) -> bool:
    """Peers call the nodes that were asked themselves, and those that a finding names."""
    return bool(in_vain(case, node)) or (bool(peers_asked(case, node)) and f"peer:{node}" in called(case))


def called(case: LaunchCase) -> set[str]:
    return {one for ids in case.seen["ran"].values() for one in ids if one.startswith("peer:")}


def peers_do_not_reach(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    found = in_vain(case, place.node)
    if found:
        return yes(found[0], "calls of the other nodes")
    return (
        no("the other nodes reach it", "calls of the other nodes")
        if was_called(case, place.node)
        else why_not_asked(place.node)
    )


def peers_reach(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    if not was_called(case, place.node):
        return why_not_asked(place.node)
    if in_vain(case, place.node):
        return no(in_vain(case, place.node)[0], "calls of the other nodes")
    return yes(f"{few(peers_asked(case, place.node))} reach it", "calls of the other nodes")


def takes_calls_without_a_word(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    for one in of_checks(case, ("net.peer.hangs",)):
        if place.node in ends_of(one):
            return yes(one["summary"], "calls of the other nodes")
    return no("what it takes is answered") if was_called(case, place.node) else why_not_asked(place.node)


def began_anew(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    pair = case.both(place.node)
    if pair is None:
        return not_looked(case.why_not(place.node, "boot_id"))
    if pair[0]["boot_id"] != pair[1]["boot_id"]:
        return yes("its boot id is another one than at the start", f"records of {place.node}")
    return no("it has not been booted again", f"records of {place.node}")


def login_was_refused(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    end = case.node_ends.get(place.node)
    why = f"{end['lost_why'] if end else ''}\n{case.seen['not_looked'].get(place.node, '')}"
    said = REFUSED_LOGIN.search(why)
    if said:
        line = why[why.rfind("\n", 0, said.start()) + 1 :].splitlines()[0]
        return yes(line.strip(), f"the connection to {place.node}")
    return (
        no("no login was refused", f"the connection to {place.node}") if why.strip() else not_looked("why is not known")
    )


def all_lost_together(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    del place
    lost = [end for end in case.node_ends.values() if end["lost"]]
    if len(case.nodes) < 2 or len(lost) < len(case.nodes):
        return no("not all nodes were lost")
    at = [end["last_answer"] for end in lost]
    if max(at) - min(at) <= TOGETHER:
        return yes(
            f"all {len(lost)} nodes stopped answering within {max(at) - min(at):.0f} s", "the controller", min(at)
        )
    return no("the nodes were lost one after another", "the controller")


def leases_ran_out(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    del place
    ended = [name for name, end in case.node_ends.items() if end["reason"] == "lease"]
    if len(ended) > 1 and len(ended) == len(case.nodes):
        return yes("the lease ran out on all nodes", "the end of the launch on each node")
    return no(f"it ran out on {few(ended)} alone" if ended else "", "the end of the launch on each node")


def lease_ran_out_here(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    ended = [name for name, end in case.node_ends.items() if end["reason"] == "lease"]
    known = [name for name, end in case.node_ends.items() if end["reason"]]
    if place.node in ended and len(ended) < len(case.nodes) and len(known) == len(case.nodes):
        return yes("its lease ran out, and that of others did not", f"the end of the launch on {place.node}")
    return no()


def disk_of_controller(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    del place
    said = DISK.search(case.launch["ending_text"]) if not case.launch["ending_node"] else None
    return yes(case.launch["ending_text"], "the controller") if said else no()


def leased(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del case
    return (CausePlace(one.node) for one in by if one.node)


LOG_IN = OnNode()
HANGS = Question("probe.hangs", "does {node} take calls without a word?", takes_calls_without_a_word, LOG_IN)
DOWN = Question("probe.peers", "do the other nodes not reach {node} either?", peers_do_not_reach, LOG_IN)
REACHED = Question("probe.reached", "do the other nodes still reach {node}?", peers_reach, LOG_IN)
LOGIN = Question("access.login", "was the login on {node} refused?", login_was_refused, LOG_IN)
BOOTED = Question(
    "access.booted",
    "was {node} booted again during the launch?",
    began_anew,
    OnNode("journalctl --list-boots"),
)

CAUSES = (
    Cause(
        "access.host_down",
        group="access",
        scope="node",
        says="{node} is down or off the network: neither the controller nor the other nodes reach it",
        fix="Look at the machine itself, at its console or its management board",
        command=LOG_IN,
        symptoms=LOST,
        places=nodes_lost,
        confirm=(DOWN,),
        refute=(BOOTED,),
    ),
    Cause(
        "access.booted",
        group="access",
        scope="node",
        says="{node} was booted again during the launch",
        fix="Look why: its journal of the boot before, and its management board",
        command=OnNode("journalctl --boot=-1 --lines=50", become=True),
        symptoms=(*LOST, "unit.ended", "rank.victim", "launch.lease"),
        places=nodes_lost,
        confirm=(BOOTED,),
    ),
    Cause(
        "access.login_refused",
        group="access",
        scope="node",
        says="{node} is up, and refuses the login",
        fix="Look at its keys, its account and its host key",
        command=LOG_IN,
        symptoms=LOST,
        places=nodes_lost,
        confirm=(LOGIN,),
        instead_of=("access.ssh_down",),
    ),
    Cause(
        "access.hangs",
        group="access",
        scope="node",
        says="{node} hangs: its kernel takes calls of the other nodes, and no program there says a word",
        fix="Look at its console: it is frozen, has no memory left, or waits for a disk",
        command=LOG_IN,
        symptoms=LOST,
        places=nodes_lost,
        confirm=(HANGS,),
        refute=(BOOTED,),
        instead_of=("access.ssh_down",),
    ),
    Cause(
        "access.ssh_down",
        group="access",
        scope="node",
        says="{node} is up, and the other nodes reach it, but the controller's ssh does not",
        fix="Look at sshd there, and at the way from the controller to it",
        command=LOG_IN,
        symptoms=LOST,
        places=nodes_lost,
        confirm=(REACHED,),
    ),
    Cause(
        "access.controller_cut_off",
        group="access",
        scope="config",
        says="the controller was cut off from its nodes, or asleep; the nodes themselves have nothing to show",
        fix="Launch detached, so that the launch goes on without the controller",
        symptoms=("node.lost", "launch.lease"),
        places=nowhere,
        confirm=(
            Question("access.all_lost", "did all nodes stop answering at once?", all_lost_together),
            Question("access.leases", "did the lease run out on all nodes?", leases_ran_out),
        ),
        instead_of=("access.ssh_down", "access.cut_off"),
    ),
    Cause(
        "access.cut_off",
        group="access",
        scope="node",
        says="{node} alone was cut off from the controller for longer than its lease",
        fix="Look at the way between them, or launch detached",
        command=LOG_IN,
        symptoms=("launch.lease",),
        places=leased,
        confirm=(Question("access.lease", "did the lease run out on {node} alone?", lease_ran_out_here),),
    ),
    Cause(
        "access.controller_disk",
        group="access",
        scope="config",
        says="the disk of the controller is full, or may not be written",
        fix="Make room where the artifacts are kept",
        symptoms=("launch.start", "launch.stalled"),
        places=nowhere,
        confirm=(Question("access.disk", "is the controller's disk full?", disk_of_controller, "df -h ."),),
    ),
)
