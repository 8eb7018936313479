"""What the controller does for one environment of the nodes: its lock, and which node downloads.

Every step is a task, and Ansible ends one task on all nodes before it begins the next. So nobody waits here: what a
step needs to know of other nodes, it reads from what their earlier steps registered. An existing environment has one
step, which never changes it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleActionFail

from muster.pytorch import environments
from muster.pytorch.choice import Ask
from muster.pytorch.existing import judge
from muster.pytorch.lock import LockError, WheelSection, same_place, section_of
from muster.pytorch.request import PLAIN, TORCH
from muster.pytorch.requirements import RequestedPackages, RequirementsError
from muster.pytorch.wheels import WheelNeed, downloader, holders
from muster_controller.nodes.connection import connect
from muster_controller.nodes.distribution import PROGRAM
from muster_controller.nodes.messages import Messages
from muster_controller.playbook.variables import load_roles, read_values, registered

from .environments import environment_places, may_be_reviewed, read, sections
from .lock_file import REVIEWED, LockFile, LockText, reviewed
from .wheels import WheelSharing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible.plugins.action import ActionBase

OF_SHARING = ("cluster_address", "pytorch_offline_dir", "firewall_launch_ports")
OF_A_NODE = ("cluster_torch_version", "cluster_gpus", "pytorch_variant", "pytorch_packages")
MOST_LINES = 12


def lock_beside(path: str | None, name: str) -> str:
    """The lock of an environment with a name, beside that of the default one; nothing where that has none."""
    return str(Path(path).parent / f"{name}.lock.txt") if path else ""


class EnvironmentSteps:
    """name: "" for the default environment. looks, earlier: names of the variables in which the steps before have
    registered what came of them."""

    name = ""

    def __init__(self, action: ActionBase, task_vars: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
        self.action = action
        self.vars = task_vars
        self.node: str = task_vars["inventory_hostname"]
        self.arguments = dict(arguments)
        self.looks: str = self.arguments.pop("looks", "")
        self.earlier: list[str] = self.arguments.pop("fetched", [])
        self.path: str = self.arguments.pop("lock", "")
        self.lock = LockFile(self.path) if self.path else None

    def work(self, step: str) -> dict[str, Any]:
        try:
            return {"look": self._look, "fetch": self._fetch, "provide": self._provide}[step]()
        except LockError as problem:
            return {"failed": True, "msg": f"{self.node}: {self.path}: {problem}"}

    def _node(self, step: str, **more: Any) -> dict[str, Any]:
        here = environment_places(self.vars, self.action._templar, self.action._loader, self.node)
        arguments = {**here, **self.arguments, "step": step, **more}
        answer: dict[str, Any] = self.action._execute_module("pytorch_env", arguments, task_vars=self.vars)
        if step != "look":
            answer.pop("diff", None)  # the look has shown it
        return answer

    def _of(self, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """The part of a node's result that is of this environment."""
        return result.get("named", {}).get(self.name, {}) if self.name else result

    def _look(self) -> dict[str, Any]:
        return self._node("look", **sections(self.arguments, self.lock))

    def _fetch(self) -> dict[str, Any]:
        """If it is this node's turn, bring the wheels to all that need the same; get them here if nobody has them."""
        needs = self._needs()
        mine = needs[self.node]
        _, earlier = self._fetched(mine.key, needs)
        able = {name: need for name, need in needs.items() if name not in earlier.get("lost", ())}
        not_tried = {name: need for name, need in able.items() if not self._has_failed(name)}
        if earlier.get("complete") or downloader(mine.key, not_tried) != self.node:
            return {"skipped": True, "skip_reason": "another node gets the wheels, or none are needed"}
        takers = self._without_folder([name for name, need in able.items() if need.build and need.key == mine.key])
        peers = holders(self.node, mine.key, able, self.vars["groups"]["gpu_nodes"]) if mine.section else []
        fetched: dict[str, Any] = {"changed": True}
        sharing = self._sharing(section_of(mine.section), takers, self._askable(peers)) if mine.section else None
        if sharing is None or not sharing.holders:
            known = [mine.section] if mine.section else []
            fetched.update(self._node("fetch", locked=known))
            if fetched.get("failed") or "section" not in fetched:
                return fetched
            sharing = self._sharing(section_of(fetched["section"]), takers, [])
        section = section_of(fetched.setdefault("section", mine.section or {}))
        had = sharing.holders
        if self.lock is not None:
            fetched.update(self._written_down(self.lock, section))
        failures = sharing.spread()
        sharing.messages.close()
        return {
            **fetched,
            "holders": had,
            "came": sharing.distribution.came,
            "why": failures,
            "lost": [name for name in takers if name not in sharing.distribution.lacks],
            "complete": bool(sharing.holders),
        }

    def _ways(self, names: list[str]) -> tuple[dict[str, str], int, Messages]:
        """How these nodes pass something on: their addresses, the port, and messages to them, which are open."""
        values = {name: self._read(name, OF_SHARING, "cluster", "pytorch", "firewall") for name in names}
        port = int(str(values[names[0]]["firewall_launch_ports"]).rpartition("-")[2])
        messages = Messages({name: connect(self.action, name, self.vars) for name in names}, PROGRAM)
        messages.open()
        return {name: values[name]["cluster_address"] for name in names}, port, messages

    def _sharing(self, section: WheelSection, takers: list[str], peers: list[str]) -> WheelSharing:
        """Begin to share the wheels of this section: what each of these nodes has of them. peers: may have all."""
        addresses, port, messages = self._ways(list(dict.fromkeys([*takers, *peers])))
        folder = str(Path(self.arguments["root"], "wheels", section.digest))
        sharing = WheelSharing(section, folder, addresses, port, messages, self._shown)
        sharing.look(takers)
        return sharing

    def _without_folder(self, names: list[str]) -> list[str]:
        """This node, and of the others those that have no folder of their own with the wheels."""
        values = {name: self._read(name, OF_SHARING, "cluster", "pytorch", "firewall") for name in names}
        return [name for name in names if name == self.node or not values[name]["pytorch_offline_dir"]]

    def _read(self, name: str, variables: tuple[str, ...], *roles: str) -> dict[str, Any]:
        known = load_roles(self.action._loader, *roles)
        return read_values(self.vars, self.action._templar, known, name, variables)

    def _shown(self, line: str) -> None:
        self.action._display.display(f"  {line}")

    def _written_down(self, lock: LockFile, section: WheelSection) -> dict[str, Any]:
        """Have what a node has got in the lock, unless it is there. What the lock or a reviewed one has for the same
        request is the only answer to it: a node that was taken over could name other files for all nodes."""
        there = lock.read()
        if section in there:
            return {}
        shipped = reviewed() if may_be_reviewed(self.arguments) else ()
        for whose, known in ((lock, there), (REVIEWED, shipped)):
            same = [one for one in known if same_place(section, one) and section.asked == one.asked]
            if same and section not in same:
                raise LockError(f"the node answered with another environment for {section.title} than {whose} has")
        done = lock.take(section, self._asks())
        self._say(lock, done["locked"])
        whence = f"from {REVIEWED}, reviewed" if section in reviewed() else "resolved today, and not reviewed"
        self.action._display.display(f"  {lock}: {section.title}: {whence}")
        return done

    def _provide(self) -> dict[str, Any]:
        needs = self._needs()
        mine = needs[self.node]
        if not mine.build:
            return self._node("provide", locked=[mine.section] if mine.section else []) if self._has_work() else {}
        name, news = self._fetched(mine.key, needs)
        if not news:
            here = "" if self._has_failed(self.node) else ", and it was not tried here"
            raise AnsibleActionFail(f"{self.node}: nobody downloaded the wheels{here}. {self._failures(mine.key)}")
        keep = name == self.node and name in news["holders"]
        result = self._node("provide", locked=[news["section"]], keep_wheels=keep)
        if "wheels" in result:
            result["wheels"].update(self._came(name, news, result["wheels"]["came_from"]))
        why = result.get("wheels", {}).get("why")
        if why and "index" in result["wheels"]["came_from"]:
            result["warnings"] = [f"{self.node} downloaded its wheels itself: {why}."]
        return result

    def _came(self, name: str, news: Mapping[str, Any], found: list[str]) -> dict[str, Any]:
        """Where the wheels of this node came from. name: of the node that got them for all, with this news of it.
        found: what the node says, which had them all beforehand or got them itself."""
        if found != ["here"]:
            return {"why": news["why"].get(self.node, "")}
        got = news.get("wheels", {}).get("came_from") if name == self.node else None
        return {"came_from": got or news["came"].get(self.node) or found, "why": ""}

    def _needs(self) -> dict[str, WheelNeed]:
        """What the look found that each node needs, in the order of the play."""
        found = {name: self._need(name) for name in self.vars["ansible_play_batch"]}
        return {name: need for name, need in found.items() if need is not None}

    def _need(self, name: str) -> WheelNeed | None:
        look = self._of(registered(self.vars, name, self.looks))
        return WheelNeed(**look["needs"]) if "needs" in look and not look.get("failed") else None

    def _has_work(self) -> bool:
        """Whether the look found anything to do here."""
        look = self._of(registered(self.vars, self.node, self.looks))
        return bool(look.get("forget")) or any(look["plan"][part] for part in ("build", "switch", "remove"))

    def _has_failed(self, name: str) -> bool:
        """Whether this node could not get the wheels of an environment with a name, which leaves it in the play."""
        return bool(self.name) and any(
            self._of(registered(self.vars, name, register)).get("failed") for register in self.earlier
        )

    def _fetched(self, key: str, needs: Mapping[str, WheelNeed]) -> tuple[str, Mapping[str, Any]]:
        """The node that has last got these wheels in this run, and what it reported; nothing where nobody has."""
        for register in reversed(self.earlier):
            for name in (name for name, need in needs.items() if need.key == key):
                news = self._of(registered(self.vars, name, register))
                if "section" in news:
                    return name, news
        return "", {}

    def _failures(self, key: str) -> str:
        """Why each node that tried to get these wheels did not. Ansible has left it out of the play."""
        why = []
        for name in self.vars["ansible_play_hosts_all"]:
            need = self._need(name)
            for register in self.earlier if need and need.key == key else ():
                news = self._of(registered(self.vars, name, register))
                if news.get("failed") or news.get("unreachable"):
                    why.append(f"{name}: {str(news.get('msg', '')).removeprefix(name + ': ')}")
        return " ".join(why)

    def _askable(self, names: list[str]) -> list[str]:
        """The nodes to ask for wheels: none where they lie in a folder of the node itself."""
        return [] if self.arguments.get("offline_dir") else names

    def _asks(self) -> list[Ask]:
        """What the inventory asks of every node; and of the release that this run asks for: an upgrade does, before the
        inventory has it, and what is in use until then stays in the lock."""
        package = self.arguments.get("package", TORCH)
        if package != TORCH:
            version, packages = str(self.arguments["torch_version"]), tuple(self.arguments["packages"])
            return [Ask(version, PLAIN, 0, packages, package=package)]
        asks = []
        for name in self.vars["groups"]["gpu_nodes"]:
            values = self._read(name, OF_A_NODE, "cluster", "pytorch")
            asks.append(self._ask(values))
        asked = str(self.arguments["torch_version"])
        return list(dict.fromkeys([*asks, *(replace(ask, torch_version=asked) for ask in asks)]))

    def _ask(self, values: Mapping[str, Any]) -> Ask:
        return Ask(
            torch_version=values["cluster_torch_version"],
            variant=values["pytorch_variant"],
            gpus=values["cluster_gpus"],
            packages=tuple(values["pytorch_packages"]),
        )

    def _say(self, lock: LockText, changes: list[str]) -> None:
        more = len(changes) - MOST_LINES
        lines = [*changes[:MOST_LINES], *([f"and {more} more"] if more > 0 else [])]
        for line in lines:
            self._shown(f"{lock}: {line}")


class ExistingSteps:
    def __init__(
        self, action: ActionBase, task_vars: Mapping[str, Any], arguments: Mapping[str, Any], name: str
    ) -> None:
        self.action, self.vars, self.arguments, self.name = action, task_vars, arguments, name
        self.node: str = task_vars["inventory_hostname"]
        self.path = environments.existing(arguments["environments"][name])

    def work(self, step: str) -> dict[str, Any]:
        """What stands against it is kept in the result, and holds up no other environment."""
        if step != "look":
            return {"skipped": True, "skip_reason": "nothing is done to it"}
        own = self._own_folder()
        if own:
            return self._refused(
                f"{self.path} lies in {own}, where Muster builds and removes. Name it without a prefix"
            )
        given = {"node": self.node, "prefix": self.path, "user": self.arguments.get("user", "nobody")}
        seen: dict[str, Any] = self.action._execute_module("existing_env", given, task_vars=self.vars)
        if seen.get("failed") or "marks" not in seen:
            return seen
        found = judge(self.path, seen, seen["looked_as"])
        about = {"path": self.path, "made_by": found.made_by, "python": found.python, "torch": found.torch}
        if found.refusal:
            return {**self._refused(found.refusal), "existing": about}
        notes = [f"{self.node}: environment {self.name}: {note}." for note in found.notes]
        return {"changed": False, "existing": about, "warnings": notes}

    def _own_folder(self) -> str:
        roots = [str(self.arguments.get(option) or "").rstrip("/") for option in ("root", "environments_root")]
        return next((root for root in roots if root and f"{self.path}/".startswith(f"{root}/")), "")

    def _refused(self, why: str) -> dict[str, Any]:
        return {"failed": True, "msg": f"{self.node}: environment {self.name}: {why}."}


class NamedSteps(EnvironmentSteps):
    """An environment of cluster_environments: in a folder of its own, from a file of its own, with its own lock."""

    asked = RequestedPackages("", "", ())

    def __init__(
        self, action: ActionBase, task_vars: Mapping[str, Any], arguments: Mapping[str, Any], name: str
    ) -> None:
        own = dict(arguments)
        self.name = name
        self.entry: Mapping[str, Any] = own.pop("environments")[name]
        root = own.pop("environments_root")
        own["lock"] = lock_beside(own.get("lock"), name)
        super().__init__(action, task_vars, own)
        self.arguments.update(root=environments.folder_of(root, name), ranges=True)
        if "python" in self.entry:
            self.arguments["python"] = self.entry["python"]

    def work(self, step: str) -> dict[str, Any]:
        """What goes wrong is kept in the result, and holds up no other environment."""
        try:
            asked = self.asked = read(self.entry, self.vars["inventory_dir"])
            default = self.arguments["torch_version"]
            self.arguments.update(
                torch_version=asked.torch_version or default,
                variant=asked.variant or self.arguments.get("variant", "auto"),
                packages=list(asked.packages),
            )
            if asked.torch_version not in ("", default):
                # What goes with the GPUs was found out for the other release.
                self.arguments["auto_variant"] = ""
            done = super().work(step)
        except (AnsibleActionFail, RequirementsError) as problem:
            done = {"failed": True, "msg": str(problem)}
        if "before" in done.get("diff", {}):
            done["diff"] |= dict.fromkeys(("before_header", "after_header"), f"environment {self.name}")
        if done.get("failed"):
            said = str(done.get("msg", "")).removeprefix(f"{self.node}: ")
            done["msg"] = (
                f"{self.node}: environment {self.name}: {environments.in_its_words(said, self.name, self.entry)}"
            )
        return done

    def _ask(self, values: Mapping[str, Any]) -> Ask:
        asked = self.asked
        return Ask(
            torch_version=asked.torch_version or values["cluster_torch_version"],
            variant=asked.variant or values["pytorch_variant"],
            gpus=values["cluster_gpus"],
            packages=asked.packages,
            ranges=True,
        )
