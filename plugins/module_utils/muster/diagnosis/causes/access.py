"""Causes of lost connections: host down, rebooted or hung, SSH down, login rejected, controller disconnected."""

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
# pam_nologin, with the text of systemd-user-sessions
NO_LOGIN = re.compile(r"System is (?:going down|booting up)\b[^\n]{0,100}")
DISK = re.compile(r"No space left on device|Errno 28|Disk quota exceeded|Read-only file system")
UNREACHED = ("net.peer.dropped", "net.peer.unreachable", "net.peer.prohibited")
TOGETHER = 20.0  # seconds: a disconnected controller loses all nodes within this time
LOST = ("node.lost", "launch.peer", "launch.start")


def nodes_lost(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Yield the nodes that the controller cannot reach. A node that responds to the controller is not lost, even if a
    peer in a detached launch received no response from the node."""
    shown = [one.node for one in by if one.node and one.id in LOST and one.id != "launch.peer"]
    ends = [name for name, end in case.node_ends.items() if end["lost"] or not end["reached"]]
    return (CausePlace(node) for node in dict.fromkeys((*shown, *ends)))


def nodes_booted(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Yield the lost nodes, and the nodes that respond again after a reboot."""
    back = [CausePlace(name) for name in case.nodes if has_rebooted(case, CausePlace(name)).word == "yes"]
    return iter(dict.fromkeys((*nodes_lost(case, by), *back)))


def nowhere(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del case, by
    yield CausePlace()


# ---------------------------------------------------------------- checks


def probing_peers(case: LaunchCase, node: str) -> list[str]:
    """Return the other nodes that ran connection probes after the failure."""
    return [one for one in case.nodes if one != node and case.looked_for("net.peer.unreachable", one)]


def failed_probes(case: LaunchCase, node: str) -> list[str]:
    """Return the findings about failed connections to the node."""
    return [f"{one['id']}: {one['summary']}" for one in of_checks(case, UNREACHED) if node in ends_of(one)]


def not_probed(node: str) -> CauseAnswer:
    return not_looked(f"no other node tested a connection to {node}")


def was_probed(case: LaunchCase, node: str) -> bool:
    """Return whether another node tried to connect to the node after the failure."""
    return bool(failed_probes(case, node)) or (bool(probing_peers(case, node)) and f"peer:{node}" in called(case))


def called(case: LaunchCase) -> set[str]:
    return {one for ids in case.seen["ran"].values() for one in ids if one.startswith("peer:")}


def peers_do_not_reach(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    found = failed_probes(case, place.node)
    if found:
        return yes(found[0], "probes from other nodes")
    return (
        no(f"other nodes can connect to {place.node}", "probes from other nodes")
        if was_probed(case, place.node)
        else not_probed(place.node)
    )


def peers_reach(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    if not was_probed(case, place.node):
        return not_probed(place.node)
    if failed_probes(case, place.node):
        return no(failed_probes(case, place.node)[0], "probes from other nodes")
    return yes(f"{few(probing_peers(case, place.node))} can connect to {place.node}", "probes from other nodes")


def accepts_without_responding(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    for one in of_checks(case, ("net.peer.hangs",)):
        if place.node in ends_of(one):
            return yes(one["summary"], "probes from other nodes")
    return no("accepted connections get a response") if was_probed(case, place.node) else not_probed(place.node)


def has_rebooted(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    start, end = (case.seen[part].get(place.node) for part in ("start", "end"))
    now = end["boot_id"] if end else case.seen.get("boots", {}).get(place.node, "")
    if start is None or not now:
        return not_looked(case.why_not(place.node, "boot_id"))
    if start["boot_id"] != now:
        return yes("the boot ID has changed since the launch started", f"records of {place.node}")
    return no("the boot ID did not change", f"records of {place.node}")


def is_between_boots(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    why = why_lost(case, place.node)
    if said := NO_LOGIN.search(why):
        return yes(said[0], f"the connection to {place.node}")
    return no("the node reported no boot") if why.strip() else not_looked(f"the state of {place.node} is unknown")


def why_lost(case: LaunchCase, node: str) -> str:
    end = case.node_ends.get(node)
    return f"{end['lost_why'] if end else ''}\n{case.seen['not_looked'].get(node, '')}"


def login_was_refused(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    why = why_lost(case, place.node)
    said = REFUSED_LOGIN.search(why)
    if said:
        line = why[why.rfind("\n", 0, said.start()) + 1 :].splitlines()[0]
        return yes(line.strip(), f"the connection to {place.node}")
    return (
        no("no login was rejected", f"connection to {place.node}")
        if why.strip()
        else not_looked("the reason for the lost connection is unknown")
    )


def all_lost_together(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    del place
    lost = [end for end in case.node_ends.values() if end["lost"]]
    if len(case.nodes) < 2 or len(lost) < len(case.nodes):
        return no("the controller did not lose its connection to every node")
    at = [end["last_answer"] for end in lost]
    if max(at) - min(at) <= TOGETHER:
        return yes(
            f"all {len(lost)} nodes stopped responding within {max(at) - min(at):.0f} s", "the controller", min(at)
        )
    return no("the nodes stopped responding at different times", "the controller")


def leases_ran_out(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    del place
    ended = [name for name, end in case.node_ends.items() if end["reason"] == "lease"]
    if len(ended) > 1 and len(ended) == len(case.nodes):
        return yes("the lease expired on all nodes", "exit records of the nodes")
    return no(f"the lease expired only on {few(ended)}" if ended else "", "exit records of the nodes")


def lease_ran_out_here(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    ended = [name for name, end in case.node_ends.items() if end["reason"] == "lease"]
    known = [name for name, end in case.node_ends.items() if end["reason"]]
    if place.node in ended and len(ended) < len(case.nodes) and len(known) == len(case.nodes):
        return yes("the lease expired only on this node", f"exit record of {place.node}")
    return no()


def disk_of_controller(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    del place
    said = DISK.search(case.launch["ending_text"]) if not case.launch["ending_node"] else None
    return yes(case.launch["ending_text"], "the controller") if said else no()


def leased(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del case
    return (CausePlace(one.node) for one in by if one.node)


LOG_IN = OnNode()
HANGS = Question("probe.hangs", "does {node} accept connections but not respond?", accepts_without_responding, LOG_IN)
DOWN = Question("probe.peers", "do connections from other nodes to {node} also fail?", peers_do_not_reach, LOG_IN)
REACHED = Question("probe.reached", "can other nodes still connect to {node}?", peers_reach, LOG_IN)
LOGIN = Question("access.login", "did {node} reject the login?", login_was_refused, LOG_IN)
BOOTED = Question(
    "access.booted",
    "did {node} reboot during the launch?",
    has_rebooted,
    OnNode("journalctl --list-boots"),
)
BETWEEN_BOOTS = Question(
    "access.booting", "does {node} reject logins because it boots or shuts down?", is_between_boots
)

CAUSES = (
    Cause(
        "access.host_down",
        scope="node",
        says="{node} is down or disconnected: neither the controller nor the other nodes can reach it",
        fix="Check the power and network of the machine through its console or BMC, then test the login",
        command=LOG_IN,
        symptoms=LOST,
        places=nodes_lost,
        confirm=(DOWN,),
        refute=(BOOTED,),
    ),
    Cause(
        "access.booted",
        scope="node",
        says="{node} rebooted during the launch, or is still rebooting",
        fix="Look for the reason in the BMC event log and in the journal of the previous boot",
        command=OnNode("journalctl --boot=-1 --lines=50", become=True),
        symptoms=(*LOST, "unit.ended", "rank.victim", "launch.lease"),
        places=nodes_booted,
        confirm=(BOOTED, BETWEEN_BOOTS),
        instead_of=("access.host_down", "access.ssh_down", "access.login_refused", "access.cut_off", "process.unit"),
    ),
    Cause(
        "access.login_refused",
        scope="node",
        says="{node} is up but rejects the login",
        fix="Check the SSH keys, the user account and the host key, then test the login",
        command=LOG_IN,
        symptoms=LOST,
        places=nodes_lost,
        confirm=(LOGIN,),
        instead_of=("access.ssh_down",),
    ),
    Cause(
        "access.hangs",
        scope="node",
        says="{node} hangs: its kernel accepts connections, but no program responds",
        fix="Check the console for a kernel hang, memory exhaustion or blocked disk I/O, then test the login",
        command=LOG_IN,
        symptoms=LOST,
        places=nodes_lost,
        confirm=(HANGS,),
        refute=(BOOTED,),
        instead_of=("access.ssh_down",),
    ),
    Cause(
        "access.ssh_down",
        scope="node",
        says="{node} is up and reachable from other nodes, but SSH from the controller fails",
        fix="Check sshd on {node} and the network path from the controller, then test the login",
        command=LOG_IN,
        symptoms=LOST,
        places=nodes_lost,
        confirm=(REACHED,),
    ),
    Cause(
        "access.controller_cut_off",
        scope="config",
        says="the controller was suspended or lost its connection to all nodes; the nodes show no fault",
        fix="Use a detached launch, which continues without the controller",
        symptoms=("node.lost", "launch.lease"),
        places=nowhere,
        confirm=(
            Question("access.all_lost", "did all nodes stop responding at the same time?", all_lost_together),
            Question("access.leases", "did the lease expire on all nodes?", leases_ran_out),
        ),
        instead_of=("access.ssh_down", "access.cut_off"),
    ),
    Cause(
        "access.cut_off",
        scope="node",
        says="only {node} was disconnected from the controller for longer than the lease of the launch",
        fix="Use a detached launch, or check the network path between the controller and {node}",
        command=LOG_IN,
        symptoms=("launch.lease",),
        places=leased,
        confirm=(Question("access.lease", "did the lease expire only on {node}?", lease_ran_out_here),),
    ),
    Cause(
        "access.controller_disk",
        scope="config",
        says="the disk of the controller is full or read-only",
        fix="Free space on the disk that contains the artifacts, or make its file system writable",
        symptoms=("launch.start", "launch.stalled"),
        places=nowhere,
        confirm=(Question("access.disk", "is the controller disk full or read-only?", disk_of_controller, "df -h ."),),
    ),
)
