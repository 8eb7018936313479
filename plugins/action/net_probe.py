"""Lets all nodes connect to each other and evaluates the results; documented in library/net_probe.py."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from muster.net_probe import judge, links, names
from muster.net_probe.cluster import Cluster, untried
from muster_controller.nodes.connection import connect
from muster_controller.nodes.dropped import count
from muster_controller.nodes.messages import Messages
from muster_controller.nodes.program import NodeProgram
from muster_controller.nodes.streams import CALLER, Streams
from muster_controller.playbook.action import ControllerAction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muster_controller.nodes.connection import NodeConnection
    from muster_controller.nodes.messages import NodeReply

LISTENER = NodeProgram("probe_listener")
# A node that gets no message for this long ends its part of the probe, because the controller is gone.
IDLE = 10.0
IDLE_PER_NODE = 0.2
SERVE_TIMEOUT = 30.0  # plus the same time if another probe must end first
# A node probes 32 links at a time. A link takes up to 15 s if all of its checks time out.
PROBE_TIMEOUT = 30.0
PROBE_TIMEOUT_PER_NODE = 0.5
END_TIMEOUT = 5.0
SAMPLES = 3  # ephemeral ports: the first, the last, and one in between
PACKETS = 200  # per link; fewer with many nodes, so that a node sends at most PACKETS_IN_ALL
PACKETS_IN_ALL = 6000
FEWEST_PACKETS = 60


class ActionModule(ControllerAction):
    """Contacts all nodes at once, with the connection settings of the inventory."""

    def work(self) -> dict[str, Any]:
        plan = self.options["plan"]
        of_play, working = self.task_vars["ansible_play_hosts_all"], self.task_vars["ansible_play_hosts"]
        in_play = self.options["nodes"] or of_play
        alive = [name for name in in_play if name in working or name not in of_play]
        probe = Probe(
            plan,
            {name: request for name, request in plan["requests"].items() if name in in_play},
            {name: "not reachable, or an earlier step failed" for name in in_play if name not in alive},
        )
        probe.begin({name: connect(self, name, self.task_vars) for name in probe.asked})
        try:
            probe.call()
            cluster = probe.cluster()
            if self.options["throughput"] and not self._task.check_mode:  # jobs may be running
                Streams(probe.messages, probe.token, probe.served).measure(cluster)
        finally:
            probe.end()
        return judge.result(cluster)


class Probe:
    """One probe of the network: sends messages to all nodes, and receives their responses."""

    def __init__(
        self, plan: Mapping[str, Any], requests: Mapping[str, Mapping[str, Any]], left_out: dict[str, str]
    ) -> None:
        self.plan = plan
        self.requests = requests
        self.left_out = {name: why for name, why in left_out.items() if name in requests}
        self.asked = [name for name in requests if name not in self.left_out]
        self.token = secrets.token_hex(16)
        self.why: dict[str, str] = dict(self.left_out)
        self.served: dict[str, dict[str, Any]] = {}
        self.probed: dict[str, dict[str, Any]] = {}

    def begin(self, connections: dict[str, NodeConnection]) -> None:
        self.messages = Messages(connections, LISTENER)
        self.messages.open()
        idle = IDLE + IDLE_PER_NODE * len(self.requests)
        for name in self.asked:
            request = self.requests[name]
            message = {"token": self.token, "node": name, "port": request["port"], "samples": SAMPLES, "idle": idle}
            self.messages.ask(name, "serve", message)
        self.served = self.gather("serve", self.asked, SERVE_TIMEOUT + idle)

    def gather(self, verb: str, nodes: list[str], timeout: float) -> dict[str, dict[str, Any]]:
        """Return the responses to one verb. If a node does not respond, record the reason."""
        answers = self.messages.gather(verb, nodes, timeout, lambda _: None)
        found = {}
        for name in nodes:
            answer: NodeReply | None = answers.get(name)
            if answer is None:
                self.why.setdefault(name, f"no response within {timeout:.0f} s")
            elif answer.data is None:
                self.why.setdefault(name, answer.error)
            else:
                found[name] = answer.data
        return found

    def call(self) -> None:
        """Let every node connect to all other nodes, including those that did not respond to the controller."""
        peers = [self.peer(name) for name in self.requests]
        packets = max(FEWEST_PACKETS, min(PACKETS, PACKETS_IN_ALL // max(1, len(peers) - 1)))
        for name in self.served:
            others = [peer for peer in peers if peer["node"] != name]
            own = self.requests[name]["address"]
            message = {"token": self.token, "address": own, "packets": packets, "peers": others}
            self.messages.ask(name, "probe", message, program=CALLER)
        timeout = PROBE_TIMEOUT + PROBE_TIMEOUT_PER_NODE * len(self.requests)
        self.probed = self.gather("probe", list(self.served), timeout)
        count(self.messages, self.served, self.probed)

    def peer(self, name: str) -> dict[str, Any]:
        request, served = self.requests[name], self.served.get(name)
        ports = served["ephemeral"] if served else []
        if not untried(served, request["port"]):
            ports = [request["port"], *ports]
        called = names.names_of(name, served["hostname"]) if served else []
        return {"node": name, "address": request["address"], "ports": ports, "names": called}

    def end(self) -> None:
        for name, served in self.served.items():
            self.messages.ask(name, "end", {"pid": served["pid"], "started": served["started"]})
        self.messages.gather("end", list(self.served), END_TIMEOUT, lambda _: None)

    def cluster(self) -> Cluster:
        nodes = [
            links.Node(
                name,
                request["address"],
                request["interface"],
                self.served.get(name),
                self.why.get(name, ""),
                self.probed.get(name, {}).get("names", {}),
                tuple(self.probed.get(name, {}).get("asked", ())),
                self.probed.get(name, {}).get("resolvers", {}),
            )
            for name, request in self.requests.items()
        ]
        found, plan = links.between(nodes, self.probed), self.plan
        return Cluster(nodes, found, plan["head"], plan["port"], plan["participants"], self.left_out)
