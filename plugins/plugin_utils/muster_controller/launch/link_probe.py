"""Tests the links between the nodes of a launch right before its start; see muster/net_probe/before_launch.py."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from muster.net_probe import before_launch
from muster_controller.nodes.dropped import count
from muster_controller.nodes.program import NodeProgram
from muster_controller.nodes.streams import CALLER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from muster.launch.planned import LaunchPlan
    from muster.verdict.finding import Finding
    from muster_controller.nodes.messages import Messages

LISTENER = NodeProgram("probe_listener")
SERVE_TIMEOUT = 15.0
# A node probes 32 links at a time. A link takes up to 15 s if all of its checks time out.
CALL_TIMEOUT = 20.0
CALL_TIMEOUT_PER_NODE = 0.5
END_TIMEOUT = 5.0


def probe_links(
    plan: LaunchPlan, messages: Messages, give_up: Callable[[], bool], beats: int | None = None
) -> list[Finding]:
    """Return findings about links that block a launch. Needs no root, and leaves no listener running. beats: the
    heartbeat port of a detached launch."""
    if len(plan.nodes) < 2:
        return []
    with probed(plan, messages, give_up, beats) as probe:
        return [] if give_up() else before_launch.judge(plan, probe.served, probe.called, probe.why, beats)


@contextmanager
def probed(
    plan: LaunchPlan,
    messages: Messages,
    give_up: Callable[[], bool],
    beats: int | None = None,
    patience: float = SERVE_TIMEOUT,
) -> Iterator[LinkProbe]:
    """Run the probe until all nodes have tried to connect to each other or the user interrupts, and then end the
    listeners. patience: time in seconds after which nodes that do not listen are skipped."""
    probe = LinkProbe(plan, messages, give_up, beats, patience)
    try:
        probe.serve()
        probe.call()
        yield probe
    finally:
        probe.end()


class LinkProbe:
    """One probe. why: for each node that did not respond, the reason."""

    def __init__(
        self,
        plan: LaunchPlan,
        messages: Messages,
        give_up: Callable[[], bool],
        beats: int | None,
        patience: float = SERVE_TIMEOUT,
    ) -> None:
        self.plan = plan
        self.patience = patience
        self.beats = beats
        self.messages = messages
        self.give_up = give_up
        self.token = secrets.token_hex(16)
        self.entries = plan.by_node()
        self.served: dict[str, dict[str, Any]] = {}
        self.called: dict[str, dict[str, Any]] = {}
        self.why: dict[str, str] = {}

    def serve(self) -> None:
        for name, entry in self.entries.items():
            request = before_launch.serve_request(self.plan, entry, self.token, self.beats)
            self.messages.ask(name, "serve", request, program=LISTENER)
        readers = dict.fromkeys(self.entries, before_launch.read_served)
        self.served = self.gather("serve", readers, self.patience)

    def call(self) -> None:
        """Let all listening nodes connect to each other. The other nodes have already reported an error."""
        readers: dict[str, Callable[[Any], dict[str, Any]]] = {}
        for name in self.served:
            request = before_launch.call_request(self.plan, self.entries[name], self.token, self.served)
            ports = {peer["node"]: peer["ports"] for peer in request["peers"]}
            readers[name] = reader_of(ports)
            self.messages.ask(name, "links", request, program=CALLER)
        self.called = self.gather("links", readers, CALL_TIMEOUT + CALL_TIMEOUT_PER_NODE * len(self.entries))
        count(self.messages, self.served, self.called, self.give_up)

    def gather(
        self, verb: str, readers: Mapping[str, Callable[[Any], dict[str, Any]]], timeout: float
    ) -> dict[str, dict[str, Any]]:
        """Return the valid responses to one verb. For each other node, record the reason."""
        answers = self.messages.gather(verb, list(readers), timeout, lambda _: None, self.give_up)
        found = {}
        for name, read in readers.items():
            answer = answers.get(name)
            if answer is None or answer.data is None:
                self.why[name] = answer.error if answer else f"no response within {timeout:.0f} s"
                continue
            try:
                found[name] = read(answer.data)
            except ValueError as exc:
                self.why[name] = f"invalid response: {exc}"
        return found

    def end(self) -> None:
        """End the listeners. A listener whose response was lost times out, because no node connects to it."""
        for name, served in self.served.items():
            self.messages.ask(name, "end", {"pid": served["pid"], "started": served["started"]}, program=LISTENER)
        self.messages.gather("end", list(self.served), END_TIMEOUT, lambda _: None)


def reader_of(ports: dict[str, list[int]]) -> Callable[[Any], dict[str, Any]]:
    return lambda data: before_launch.read_called(data, ports)
