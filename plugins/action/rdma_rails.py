"""Tests RDMA between all nodes and evaluates the results.

Connects the adapters that NCCL would use (NCCL_IB_HCA) to the adapters of the same rail on other nodes with verbs, as
the training user, with the GID, partition and traffic class that NCCL would use. Runs ibv_rc_pingpong, which compares
the received data, then ib_write_bw and ib_write_lat of perftest. In each round, a node is tested with at most one other
node, so that no adapter takes part in two tests at once. In large clusters, each node is tested with eight others. No
round starts later than two minutes after the first. The tools set up their connections over TCP, on ports of
firewall_launch_ports at the training addresses. Reports an adapter if most of its counterparts cannot reach it, a rail
if no pair on it works, or otherwise the pair. Contacts no node if fewer than two nodes have such adapters. Skips nodes
on which a job runs, with the reason. Use it with run_once. A faulty rail is a finding and never fails the task.

rails: One entry for every test, as in rails.json. null means not measured.
findings: All findings.
verdict: The combined verdict. coverage lists the checks that could not be made, with the reasons.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar

from muster.rails import judge, outputs, plan
from muster_controller.nodes.connection import connect
from muster_controller.nodes.messages import Messages
from muster_controller.nodes.program import NodeProgram
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.playbook.variables import registered

if TYPE_CHECKING:
    from collections.abc import Mapping

RAILS = NodeProgram("rails")
# Time limit of each step at the calling end. The listening end waits longer. RDMA itself times out after seconds.
STEP = 12.0
ROUND = STEP * len(plan.STEPS) + 10.0
# No round starts later than this. A round without errors takes two round trips and a few seconds.
LATEST = 120.0


class ActionModule(ControllerAction):
    """Contacts all nodes with RDMA adapters at once. Does nothing if fewer than two nodes have adapters."""

    OPTIONS: ClassVar[Options] = {
        # Registered result of health_plan.
        "plan": {"type": "dict", "required": True},
        # Name of the variable with the registered nccl_health result of each node.
        "looks": {"type": "str", "required": True},
        # Training user, which runs the tools.
        "user": {"type": "str", "required": True},
        # Enables the test.
        "tried": {"type": "bool", "default": True},
    }

    def work(self) -> dict[str, Any]:
        if not self.options["tried"]:
            return judge.result([], {}, "disabled (health_rails)")
        if self._task.check_mode:  # jobs may be running
            return judge.result([], {}, "not tested in check mode")
        in_play, alive = self.task_vars["ansible_play_hosts_all"], self.task_vars["ansible_play_hosts"]
        looks = {
            name: registered(self.task_vars, name, self.options["looks"])
            for name in self.options["plan"]["requests"]
            if name in in_play and name in alive
        }
        request = {"backend": self.options["plan"]["backend"]}
        known = {name: look["facts"] for name, look in looks.items() if "facts" in look}
        untried = {name: why for name, facts in known.items() if (why := plan.why_not(facts, request))}
        adapters = {name: plan.hcas(facts) for name, facts in known.items() if name not in untried}
        if len(adapters) < 2:
            return judge.result([], untried, "fewer than two nodes have RDMA adapters that a launch would use")
        trials = Trials(self.options, adapters)
        trials.messages = Messages({name: connect(self, name, self.task_vars) for name in adapters}, RAILS)
        trials.messages.open()
        return judge.result(trials.all(), {**untried, **trials.untried}, failed=trials.failed)


class Trials:
    messages: Messages

    def __init__(self, options: Mapping[str, Any], adapters: dict[str, list[plan.Hca]]) -> None:
        self.user = options["user"]
        low, _, high = str(options["plan"]["launch_ports"]).partition("-")
        self.ports = [int(low), int(high or low), options["plan"]["port"]]
        self.addresses = {name: options["plan"]["requests"][name]["address"] for name in adapters}
        self.adapters = adapters
        self.untried: dict[str, str] = {}
        self.failed: dict[str, str] = {}

    def all(self) -> list[outputs.RailTrial]:
        found: list[outputs.RailTrial] = []
        until = time.monotonic() + LATEST
        for meetings in plan.meetings(self.adapters):
            met = [each for each in meetings if not {each.caller, each.called} & self.failed.keys()]
            if time.monotonic() > until:
                self.untried |= {each.caller: f"not all pairs were tested within {LATEST:.0f} s" for each in met}
                break
            found += self.round(met)
        return found

    def round(self, meetings: list[plan.RailMeeting]) -> list[outputs.RailTrial]:
        rails = {each.called: [plan.commands(theirs) for _, theirs in each.pairs] for each in meetings}
        messages = {name: {"ports": self.ports, "rails": own, "seconds": ROUND} for name, own in rails.items()}
        served = self.gather("serve", messages)
        ready = [each for each in meetings if each.called in served]
        calls = {
            each.caller: {"rails": self.calls(each, served[each.called]["rails"]), "seconds": STEP} for each in ready
        }
        called = self.gather("call", calls)
        self.end(ready, served, called)
        found = []
        for each in ready:
            for number, pair in enumerate(each.pairs if each.caller in called else ()):
                listening = served[each.called]["rails"][number]
                answers = [
                    *called[each.caller]["rails"][number],
                    # A tool that is missing at the listening end was not called.
                    *(
                        {"text": "", "aside": "", "why": end["why"], "missing": True}
                        for end in listening
                        if end["missing"]
                    ),
                ]
                unserved = "" if listening[0]["missing"] else listening[0]["why"]
                found.append(outputs.trial((each.caller, each.called), pair, answers, unserved))
        return found

    def end(self, meetings: list[plan.RailMeeting], served: Mapping[str, Any], called: Mapping[str, Any]) -> None:
        """End listening processes to which no node connected because an earlier step failed."""
        messages = {}
        for each in meetings:
            rails = called.get(each.caller, {"rails": [[] for _ in each.pairs]})["rails"]
            ends = [
                end
                for listening, said in zip(served[each.called]["rails"], rails, strict=True)
                for end in listening[sum(not one["why"] for one in said) :]
                if end["pid"]
            ]
            if ends:
                messages[each.called] = {"ends": ends}
        self.gather("end", messages)

    def calls(self, meeting: plan.RailMeeting, served: list[list[dict[str, Any]]]) -> list[list[list[str]]]:
        """Return the connecting node's commands for the steps before the first step that has no listening process."""
        address = self.addresses[meeting.called]
        every = []
        for (mine, _), ends in zip(meeting.pairs, served, strict=True):
            steps = []
            for words, end in zip(plan.commands(mine), ends, strict=True):
                if end["why"]:
                    break
                steps.append([*words, "-p", str(end["port"]), address])
            every.append(steps)
        return every

    def gather(self, verb: str, messages: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Send each node its message. A node that does not respond is excluded from further rounds."""
        for name, message in messages.items():
            self.messages.ask(name, verb, {**message, "user": self.user}, privileged=True)
        answers = self.messages.gather(verb, list(messages), ROUND, lambda _: None)
        found = {}
        for name in messages:
            answer = answers.get(name)
            if answer is None or answer.data is None:
                self.failed[name] = answer.error if answer else f"no response within {ROUND:.0f} s"
            else:
                found[name] = answer.data
        return found
