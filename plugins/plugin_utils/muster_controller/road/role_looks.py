"""Inspects each node once for all roles of a step, with one request to the node, and evaluates the result here.

A role is skipped on a node without differences. In all other cases, including errors, the role runs and inspects the
node itself.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from muster.firewall.look import read_look
from muster.firewall.model import FirewallError
from muster.network import ssh_mesh
from muster.road import looks as road
from muster_controller.drift import installed
from muster_controller.network import firewall_look
from muster_controller.network.mesh_members import member_of
from muster_controller.nodes.asking import ask_nodes
from muster_controller.nodes.program import NodeProgram
from muster_controller.playbook.node_error import one_line
from muster_controller.playbook.variables import load_roles, read_node, value_of_nodes
from muster_controller.pytorch import environments
from muster_controller.pytorch.lock_file import LockFile

from .role_tasks import RoleTasks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from muster.firewall.model import CutOff
    from muster.road.looks import RoleLook
    from muster_controller.playbook.action import ControllerAction

Json = dict[str, Any]

PROGRAM = NodeProgram("role_looks", "road")
SECONDS = 300.0  # for a node to respond; a PyTorch environment on an uncached disk takes minutes
USER = "_ssh_mesh_user"
NO_ANSWER = "no response to the inspection of all roles"


@dataclass
class RoleDecisions:
    """For each role, the nodes on which it runs, with the reasons; the warnings; and incorrect cache entries."""

    why: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def comes(self, role: str, node: str, reasons: Iterable[str]) -> None:
        if found := [one_line(reason) for reason in reasons]:
            self.why.setdefault(role, {}).setdefault(node, []).extend(found)


class RoleLooks:
    """names: the nodes of the play."""

    def __init__(self, task_vars: Mapping[str, Any], templar: Any, loader: Any, names: Sequence[str]) -> None:
        self.task_vars, self.templar, self.loader = task_vars, templar, loader
        self.names = names
        self.tasks = RoleTasks(loader, templar, task_vars)
        self.addresses = value_of_nodes(task_vars, templar, loader, "cluster_address")
        roles = load_roles(loader)
        self.values = {name: read_node(task_vars, templar, roles, name, road.OPTIONS).values for name in self.addresses}

    def shift(self, *, check: bool) -> int:
        """Return the distance, in the ring of nodes, between a node and the target of its test login. 0 means no test
        login, as in check mode."""
        return 0 if check or len(self.names) < 2 else 1 + secrets.randbelow(len(self.names) - 1)

    # ------------------------------------------------------------ asking

    def steps_of(self, now: str, steps: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return, by node, the steps for which the node can be inspected in the step `now`."""
        return {
            name: tuple(step for step in steps if step == now or not road.waits(step, self.values[name]))
            for name in self.names
        }

    def ask(
        self,
        action: ControllerAction,
        names: Sequence[str],
        steps: Mapping[str, Sequence[str]],
        request: Json,
        shift: int,
        inspects: Mapping[str, Json] | None = None,
    ) -> Json:
        """Return the response of each node for all of its steps, or {} if the node did not respond.

        shift: the distance to the target of the test login. inspects: the options of node_inspect, by node.
        """
        own = {name: {"inspect": {"module": "node_inspect", "options": one}} for name, one in (inspects or {}).items()}
        asked = {
            name: {**request, "looks": {**own.get(name, {}), **self._requests(name, steps[name], shift)}}
            for name in names
        }
        said = ask_nodes(action, PROGRAM, "look", asked, SECONDS)
        return {name: dict(one.data["seen"]) if one.data and "seen" in one.data else {} for name, one in said.items()}

    def _requests(self, name: str, steps: Sequence[str], shift: int) -> Json:
        found = {}
        for step in steps:
            for look in road.looks_of(step):
                # Errors here, for example an unreadable lock, are reported by the role when it runs.
                with suppress(Exception):
                    anyhow = road.comes_anyhow(step, self.values[name]) and look != road.FIREWALL
                    if not anyhow and not self.is_off(look, name):
                        found.update(self._of_role(look, name, shift))
        return found

    def is_off(self, look: RoleLook, name: str) -> bool:
        return look != road.RECORD and str(self.tasks.value(look, name, f"{look.role}_mode")) == "off"

    def _of_role(self, look: RoleLook, name: str, shift: int) -> Json:
        if look.role == "ssh_mesh":
            ring = self.names[(self.names.index(name) + shift) % len(self.names)]
            sample = [ring] if shift and ring != name else []
            return {
                f"ssh_mesh {user}": self._asked(
                    look,
                    name,
                    {USER: user},
                    sample=sample,
                    memory=self.tasks.value(look, name, "_ssh_mesh_memory", **{USER: user}),
                )
                for user in self.users(look, name)
            }
        if look == road.RECORD:
            (options,) = installed.requests(self.task_vars, self.templar, self.loader, [name]).values()
            return {look.role: {"module": look.module, "options": options}}
        more: Json = {}
        if look.role == "cluster_hosts":
            more = {"nodes": self.addresses, "own": name}
        if look.role == "firewall":
            return {look.role: {"module": look.module, "options": {"places": firewall_look.PLACES}}}
        if look.role == "pytorch":
            given = self.tasks.arguments(look, name)
            lock = LockFile(given["lock"]) if given.get("lock") else None
            more = environments.environment_places(self.task_vars, self.templar, self.loader, name)
            more |= environments.sections(given, lock)
        return {look.role: self._asked(look, name, {}, filled=more)}

    def _asked(self, look: RoleLook, name: str, own: Json, filled: Json | None = None, **more: Any) -> Json:
        given = {**(filled or {}), **self.tasks.arguments(look, name, **own)}
        return {"module": look.module, "options": {**self.tasks.judged(look, given), **more}}

    def users(self, look: RoleLook, name: str) -> list[str]:
        return [str(user) for user in self.tasks.value(look, name, "_ssh_mesh_everybody")]

    # ------------------------------------------------------------ evaluating

    def judge(self, step: str, seen: Mapping[str, Json]) -> RoleDecisions:
        """Evaluate the responses, as returned by ask, for the roles of a step."""
        judged = RoleDecisions()
        for look in road.looks_of(step):
            for name in self.names:
                try:
                    if reason := road.comes_anyhow(step, self.values[name]):
                        judged.comes(look.role, name, [reason])
                    elif not self.is_off(look, name):
                        self._judge(judged, look, name, seen.get(name, {}))
                except Exception as problem:  # on any error in a template or an answer, the role runs
                    judged.comes(look.role, name, [f"{type(problem).__name__}: {problem}"])
            if look.role in road.OF_ALL:
                self._judge_mesh(judged, look, seen)
        return judged

    def _judge(self, judged: RoleDecisions, look: RoleLook, name: str, seen: Json) -> None:
        keys = [look.role]
        if look.role == "ssh_mesh":
            keys = [f"ssh_mesh {user}" for user in self.users(look, name)]
        for key in keys:
            if key not in seen:
                judged.comes(look.role, name, [NO_ANSWER])
                continue
            judged.comes(look.role, name, seen[key]["why"])
            warnings = [*seen[key]["warnings"], *filter(None, [seen[key].get("wrong", "")])]
            if look.role == "firewall" and not seen[key]["why"]:
                options = self.tasks.judged(look, self.tasks.arguments(look, name))
                why, warnings = self._firewall(name, options, seen[key]["look"])
                judged.comes(look.role, name, why)
            if name not in judged.why.get(look.role, {}):
                judged.warnings += [one_line(warning) for warning in warnings]

    def _firewall(self, name: str, options: Json, seen: Json) -> tuple[list[str], list[str]]:
        try:
            request = firewall_look.request_of(self.task_vars, self.templar, self.loader, name, self.addresses, options)
            return firewall_look.to_do(request, read_look(seen), options["mode"])
        except FirewallError as problem:
            return [str(problem)], []

    def services_cut_off(self, seen: Mapping[str, Json]) -> dict[str, Sequence[CutOff]]:
        """Return, by node, the services that the role firewall would block. seen: the responses, as returned by ask.

        A node is missing in the result if its firewall is not managed or could not be read.
        """
        found: dict[str, Sequence[CutOff]] = {}
        for name in seen:
            # The role itself reports errors, and stops before it blocks a service.
            with suppress(Exception):
                options = self.tasks.judged(road.FIREWALL, self.tasks.arguments(road.FIREWALL, name))
                request = firewall_look.request_of(
                    self.task_vars, self.templar, self.loader, name, self.addresses, options
                )
                if options["mode"] == "manage":
                    look = read_look(seen[name]["firewall"]["look"])
                    found[name] = firewall_look.cut_off(self.loader, request, look)
        return found

    def _judge_mesh(self, judged: RoleDecisions, look: RoleLook, seen: Mapping[str, Json]) -> None:
        """Compare the inspections of several nodes. If one node needs data from another, the role runs on all nodes."""
        if not judged.why.get(look.role):
            there = [name for name in self.names if not self.is_off(look, name)]
            try:
                for user in dict.fromkeys(user for name in there for user in self.users(look, name)):
                    self._judge_user(judged, look, user, {name: seen[name][f"ssh_mesh {user}"] for name in there})
            except (KeyError, TypeError, ValueError, AttributeError) as problem:  # an answer of an unexpected shape
                judged.comes(look.role, self.names[0], [f"{type(problem).__name__}: {problem}"])
        if judged.why.get(look.role):
            for name in self.names:
                judged.why[look.role].setdefault(name, ["a peer differs"])

    def _judge_user(self, judged: RoleDecisions, look: RoleLook, user: str, seen: Mapping[str, Json]) -> None:
        members = [self._member(name, seen.get(name, {}).get("look", {})) for name in self.addresses]
        known = [member for member in members if member.seen]
        for name, reason in ssh_mesh.clashes(known).items():
            judged.comes(look.role, name, [reason])
        judged.warnings += ssh_mesh.same_host_keys(known)
        for name, one in seen.items():
            given = self.tasks.arguments(look, name, **{USER: user})
            cluster = str(self.values[name]["cluster_name"])
            texts = list(one["texts"].values())
            try:
                wanted = ssh_mesh.wanted(cluster, user, members, given["identity"], *texts)
            except ssh_mesh.BlockError as problem:
                judged.comes(look.role, name, [str(problem)])
                continue
            after = [wanted.authorized_keys, wanted.config, wanted.known_hosts]
            differ = [file for file, text, is_so in zip(one["texts"], after, texts, strict=True) if text != is_so]
            judged.comes(look.role, name, [f"{file} of {user} differs" for file in differ])
            judged.comes(look.role, name, [f"{stranger} is unknown" for stranger in wanted.strangers])
            judged.comes(look.role, name, self._logins(name, user, known, seen))

    def _logins(
        self, name: str, user: str, known: Sequence[ssh_mesh.MeshMember], seen: Mapping[str, Json]
    ) -> Iterable[str]:
        """Yield the logins from this node that must be tested, because their settings have changed or a test login
        failed."""
        own = seen[name]
        for peer in ssh_mesh.sample([member.name for member in known], name):
            if own["proved"].get(peer) != ssh_mesh.way(own["ways"]["out"], seen[peer]["ways"]["in"]):
                yield f"settings for logins of {user} on {peer} have changed since the last test"
        by_name = {member.name: member for member in known}
        attempts = [
            ssh_mesh.LoginAttempt(by_name[peer], tried["code"], tried["said"], tried["hostname"])
            for peer, tried in own["tried"].items()
            if peer in by_name
        ]
        yield from ssh_mesh.refusals(user, attempts)

    def _member(self, name: str, look: Mapping[str, Any]) -> ssh_mesh.MeshMember:
        values = self.values[name]
        return member_of(name, str(values["cluster_address"]), str(values.get("ansible_host", "")), look)
