"""Checks the nodes of a failed or hanging launch for its diagnosis: all in parallel, and within a time limit.

The checks change nothing and stop no process. If a node does not respond in time, the node counts as not checked, with
this reason.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict

from muster.net_probe import before_launch, lost_peers
from muster.verdict.reading import read_one
from muster_controller.launch.link_probe import probed
from muster_controller.nodes.streams import CALLER, Streams

from .site_questions import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from muster.diagnosis.launched import Gathered
    from muster.launch.planned import LaunchPlan
    from muster_controller.launch.link_probe import LinkProbe
    from muster_controller.nodes.messages import Messages

SECONDS = 13.0  # for all checks together; ending them, deciding and showing take the rest of 20 s
LISTENING = 5.0  # of them, until nodes without listeners are left out, so that a silent node does not delay the others
BACK, AGAIN = 4.0, 0.5  # seconds that lost nodes have to respond again, and between two attempts
MOST_PATHS, ACCESS = 8, "erw"  # options of test(1)
MOST_AGAIN = 4  # slowest pairs that are measured again, for half a second each
LOST = "the node stopped responding and was not checked after the failure"


class Tested(TypedDict):
    code: int | None


class Tests(TypedDict):
    """The answers of a node to commands, by command."""

    answers: dict[str, Tested]


class Afterwards:
    """Checks a set of nodes of one launch."""

    def __init__(
        self,
        plan: LaunchPlan,
        nodes: Sequence[str],
        messages: Messages,
        give_up: Callable[[], bool],
        lost: Mapping[str, str],
        seconds: float = SECONDS,
    ) -> None:
        """lost: the nodes that do not respond, with the reasons."""
        self.plan = plan
        self.nodes = nodes
        self.messages = messages
        self.lost = lost
        self.until = time.monotonic() + seconds
        self.interrupted = give_up

    def give_up(self) -> bool:
        return self.interrupted() or time.monotonic() > self.until

    def look(self, gathered: Gathered, *, live: bool, speed: bool = False) -> None:
        """Check the nodes. live: whether ranks still hold the ports. speed: whether to measure throughput."""
        gathered.not_looked.update({name: why or LOST for name, why in self.lost.items() if name in self.nodes})
        others = (name for name in self.plan.names if name not in self.nodes)
        gathered.not_looked.update(dict.fromkeys(others, "only the nodes involved first are checked after a failure"))
        self.links(gathered, live=live, speed=speed)
        self.lost_ones(gathered)
        self.returned(gathered)

    def links(self, gathered: Gathered, *, live: bool, speed: bool) -> None:
        """Let the nodes connect to each other, using the addresses and the port of the launch."""
        there = [one for one in self.plan.nodes if one.node in self.nodes and one.node not in self.lost]
        if len(there) < 2 or self.give_up():
            return
        plan = replace(self.plan, nodes=[replace(one, node_rank=-1) for one in there] if live else there)
        with probed(plan, self.messages, self.give_up, patience=LISTENING) as probe:
            cluster = before_launch.cluster_of(plan, probe.served, probe.called)
            if speed and not self.give_up():
                Streams(self.messages, probe.token, probe.served, self.give_up).measure(cluster, MOST_AGAIN)
        gathered.findings += [one.as_dict() for one in before_launch.concluded(cluster)]
        for name, ids in before_launch.looked_for(plan, probe.served, probe.called, cluster).items():
            called = [f"peer:{one}" for one in probe.served if one != name]
            gathered.ran.setdefault(name, []).extend([*ids, *called])
        gathered.not_looked.update(self.unanswered(probe))

    def lost_ones(self, gathered: Gathered) -> None:
        """Let the other nodes connect to each node that does not respond to the controller."""
        lost = [name for name in self.nodes if name in self.lost]
        asked = [one for one in self.plan.nodes if one.node in self.nodes and one.node not in self.lost]
        if not lost or not asked or self.give_up():
            return
        token = secrets.token_hex(16)
        for entry in asked:
            request = lost_peers.request(self.plan, entry, lost, token)
            self.messages.ask(entry.node, "links", request, program=CALLER)
        names = [entry.node for entry in asked]
        left = max(0.1, self.until - time.monotonic())
        answers = self.messages.gather("links", names, left, lambda _: None, self.give_up)
        ports = dict.fromkeys(lost, lost_peers.ports_of(self.plan))
        called: dict[str, dict[str, Any]] = {}
        for name, answer in answers.items():
            try:
                called[name] = before_launch.read_called(answer.data, ports)["links"]
            except ValueError as exc:
                gathered.not_looked[name] = f"invalid response: {exc}"
        for name in lost:
            seen = {peer: found[name] for peer, found in called.items() if name in found}
            gathered.findings += [one.as_dict() for one in lost_peers.judge(name, seen)]
            for peer in seen:
                gathered.ran.setdefault(peer, []).extend(["net.peer", f"peer:{name}"])

    def paths(self, gathered: Gathered, wanted: Sequence[str]) -> None:
        """Check on each node how the launch user can access paths that ranks could not use."""
        known = list(dict.fromkeys(path for path in wanted if path.startswith("/") and path.isprintable()))[:MOST_PATHS]
        asked = [name for name in self.nodes if name not in self.lost]
        if not known or self.plan.image or self.give_up():
            return
        keys = {(path, flag): f"{flag}{number}" for number, path in enumerate(known) for flag in ACCESS}
        tests = {key: {"argv": ["test", f"-{flag}", path], "seconds": 2.0} for (path, flag), key in keys.items()}
        for name in asked:
            request = {"user": self.plan.user, "commands": tests}
            self.messages.ask(name, "commands", request, privileged=not self.plan.is_own, program=PROGRAM)
        left = max(0.1, self.until - time.monotonic())
        for name, reply in self.messages.gather("commands", asked, left, lambda _: None, self.give_up).items():
            answers = (read_one(Tests, reply.data) or Tests(answers={}))["answers"]
            codes = {key: one["code"] for key, one in answers.items()}
            gathered.paths[name] = {
                path: "".join(flag for flag in ACCESS if codes[keys[path, flag]] == 0)
                for path in known
                if all(codes.get(keys[path, flag]) in (0, 1) for flag in ACCESS)
            }

    def returned(self, gathered: Gathered) -> None:
        """Ask the lost nodes for their boot: after a reboot, a node responds again, or reports that it is booting."""
        lost = [name for name in self.nodes if name in self.lost]
        until = min(self.until, time.monotonic() + BACK)
        again = 0.0
        while lost and not self.give_up() and time.monotonic() < until:
            for name in lost:
                self.messages.ask(name, "identity", {}, delay=again)
            again = AGAIN
            left = max(0.1, until - time.monotonic())
            for name, answer in self.messages.gather("identity", lost, left, lambda _: None, self.give_up).items():
                if isinstance(answer.data, dict) and (boot := answer.data.get("boot")):
                    gathered.boots[name] = str(boot)
                    lost.remove(name)
                elif answer.error:
                    gathered.not_looked[name] = answer.error

    def unanswered(self, probe: LinkProbe) -> dict[str, str]:
        if self.interrupted():
            return dict.fromkeys(probe.why, "the checks were interrupted")
        return dict(probe.why)
