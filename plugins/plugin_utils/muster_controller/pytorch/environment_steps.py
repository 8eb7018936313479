"""The controller's part for one environment: the lock, and the choice of the node that downloads.

Each step is a task. Because Ansible finishes a task on all nodes before the next task starts, no step waits for another
node, but reads the results that earlier steps of other nodes registered. An environment that the user built has only
one step, which never changes the environment.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleActionFail

from muster.launch.messages import ACCOUNT
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

from .environments import environment_places, lock_of, may_be_reviewed, read, sections
from .lock_file import REVIEWED, LockFile, LockText, reviewed
from .wheels import WheelSharing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible.plugins.action import ActionBase

OF_SHARING = ("cluster_address", "pytorch_offline_dir", "firewall_launch_ports")
OF_A_NODE = ("cluster_torch_version", "cluster_gpus", "pytorch_variant", "pytorch_packages")
MOST_LINES = 12


class EnvironmentSteps:
    """name: "" for the default environment. looks, earlier: the variables in which earlier steps registered results."""

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
        self.own = bool(self.arguments.get("users_root"))

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
            answer.pop("diff", None)  # already shown by the inspection
        return answer

    def _of(self, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the part of a node's result that concerns this environment."""
        return result.get("named", {}).get(self.name, {}) if self.name else result

    def _look(self) -> dict[str, Any]:
        return self._node("look", **sections(self.arguments, self.lock))

    def _fetch(self) -> dict[str, Any]:
        """If this node acts for its group, download missing wheels, and distribute all wheels."""
        needs = self._needs()
        mine = needs[self.node]
        _, earlier = self._fetched(mine.key, needs)
        able = {name: need for name, need in needs.items() if name not in earlier.get("lost", ())}
        not_tried = {name: need for name, need in able.items() if not self._has_failed(name)}
        if earlier.get("complete") or downloader(mine.key, not_tried) != self.node:
            return {"skipped": True, "skip_reason": "another node provides the wheels, or no node needs them"}
        receivers = self._without_folder([name for name, need in able.items() if need.build and need.key == mine.key])
        peers = holders(self.node, mine.key, able, self.vars["groups"]["gpu_nodes"]) if mine.section else []
        fetched: dict[str, Any] = {"changed": True}
        sharing = self._sharing(section_of(mine.section), receivers, self._askable(peers)) if mine.section else None
        if sharing is None or not sharing.holders:
            known = [mine.section] if mine.section else []
            fetched.update(self._node("fetch", locked=known))
            if fetched.get("failed") or "section" not in fetched:
                return fetched
            sharing = self._sharing(section_of(fetched["section"]), receivers, [])
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
            "lost": [name for name in receivers if name not in sharing.distribution.lacks],
            "complete": bool(sharing.holders),
        }

    def _ways(self, names: list[str]) -> tuple[dict[str, str], int, Messages]:
        """Return the addresses of these nodes, the port, and opened messages, for a distribution between these
        nodes."""
        values = {name: self._read(name, OF_SHARING, "cluster", "pytorch", "firewall") for name in names}
        port = int(str(values[names[0]]["firewall_launch_ports"]).rpartition("-")[2])
        messages = Messages({name: connect(self.action, name, self.vars) for name in names}, PROGRAM)
        messages.open()
        return {name: values[name]["cluster_address"] for name in names}, port, messages

    def _sharing(self, section: WheelSection, receivers: list[str], peers: list[str]) -> WheelSharing:
        """Prepare to share the wheels of this section by inspecting each node. peers: nodes that might have all
        wheels."""
        addresses, port, messages = self._ways(list(dict.fromkeys([*receivers, *peers])))
        folder = str(Path(self.arguments["root"], "wheels", section.digest))
        sharing = WheelSharing(section, folder, addresses, port, messages, self._shown, privileged=not self.own)
        sharing.look(receivers)
        return sharing

    def _without_folder(self, names: list[str]) -> list[str]:
        """Return this node, and all other nodes that do not have their own folder of wheels."""
        values = {name: self._read(name, OF_SHARING, "cluster", "pytorch", "firewall") for name in names}
        return [name for name in names if name == self.node or not values[name]["pytorch_offline_dir"]]

    def _read(self, name: str, variables: tuple[str, ...], *roles: str) -> dict[str, Any]:
        known = load_roles(self.action._loader, *roles)
        return read_values(self.vars, self.action._templar, known, name, variables)

    def _shown(self, line: str) -> None:
        self.action._display.display(f"  {line}")

    def _written_down(self, lock: LockFile, section: WheelSection) -> dict[str, Any]:
        """Write a node's section to the lock, unless the section is present. If the lock or a reviewed lock already has
        a section for the same request, only that section is accepted, so that a compromised node cannot choose the
        files of all nodes."""
        there = lock.read()
        if section in there:
            return {}
        shipped = reviewed() if may_be_reviewed(self.arguments) else ()
        for whose, known in ((lock, there), (REVIEWED, shipped)):
            same = [one for one in known if same_place(section, one) and section.asked == one.asked]
            if same and section not in same:
                raise LockError(
                    f"the environment that the node returned for {section.title} differs from the one in {whose}"
                )
        done = lock.take(section, self._asks())
        self._say(lock, done["locked"])
        whence = f"from {REVIEWED}, reviewed" if section in reviewed() else "resolved today, not reviewed"
        self.action._display.display(f"  {lock}: {section.title}: {whence}")
        return done

    def _provide(self) -> dict[str, Any]:
        needs = self._needs()
        mine = needs[self.node]
        if not mine.build:
            return self._node("provide", locked=[mine.section] if mine.section else []) if self._has_work() else {}
        name, news = self._fetched(mine.key, needs)
        if not news:
            here = "" if self._has_failed(self.node) else " (not tried on this node)"
            raise AnsibleActionFail(f"{self.node}: no node could download the wheels{here}. {self._failures(mine.key)}")
        keep = name == self.node and name in news["holders"]
        result = self._node("provide", locked=[news["section"]], keep_wheels=keep)
        if "wheels" in result:
            result["wheels"].update(self._came(name, news, result["wheels"]["came_from"]))
        why = result.get("wheels", {}).get("why")
        if why and "index" in result["wheels"]["came_from"]:
            result["warnings"] = [f"{self.node} downloaded its wheels itself: {why}."]
        return result

    def _came(self, name: str, news: Mapping[str, Any], found: list[str]) -> dict[str, Any]:
        """Return the source of this node's wheels. name: the node that acted for the group, with its result. found: the
        report of this node, whether it already had all wheels or downloaded them itself."""
        if found != ["here"]:
            return {"why": news["why"].get(self.node, "")}
        got = news.get("wheels", {}).get("came_from") if name == self.node else None
        return {"came_from": got or news["came"].get(self.node) or found, "why": ""}

    def _needs(self) -> dict[str, WheelNeed]:
        """Return what each node needs according to the inspection, in the order of the play."""
        found = {name: self._need(name) for name in self.vars["ansible_play_batch"]}
        return {name: need for name, need in found.items() if need is not None}

    def _need(self, name: str) -> WheelNeed | None:
        look = self._of(registered(self.vars, name, self.looks))
        return WheelNeed(**look["needs"]) if "needs" in look and not look.get("failed") else None

    def _has_work(self) -> bool:
        """Return whether the inspection found anything to do on this node."""
        look = self._of(registered(self.vars, self.node, self.looks))
        return bool(look.get("forget")) or any(look["plan"][part] for part in ("build", "switch", "remove"))

    def _has_failed(self, name: str) -> bool:
        """Return whether this node failed to get the wheels of a named environment. Unlike for the default environment,
        such a node stays in the play."""
        return bool(self.name) and any(
            self._of(registered(self.vars, name, register)).get("failed") for register in self.earlier
        )

    def _fetched(self, key: str, needs: Mapping[str, WheelNeed]) -> tuple[str, Mapping[str, Any]]:
        """Return the last node that provided these wheels in this run, and its result, or an empty result if there is
        none."""
        for register in reversed(self.earlier):
            for name in (name for name, need in needs.items() if need.key == key):
                news = self._of(registered(self.vars, name, register))
                if "section" in news:
                    return name, news
        return "", {}

    def _failures(self, key: str) -> str:
        """Return the errors of the nodes that tried to get these wheels, which Ansible has removed from the play."""
        why = []
        for name in self.vars["ansible_play_hosts_all"]:
            need = self._need(name)
            for register in self.earlier if need and need.key == key else ():
                news = self._of(registered(self.vars, name, register))
                if news.get("failed") or news.get("unreachable"):
                    why.append(f"{name}: {str(news.get('msg', '')).removeprefix(name + ': ')}")
        return " ".join(why)

    def _askable(self, names: list[str]) -> list[str]:
        """Return the nodes from which to fetch wheels, or none if the node uses its own folder."""
        return [] if self.arguments.get("offline_dir") else names

    def _asks(self) -> list[Ask]:
        """Return the requests of all nodes. Sections for these requests stay in the lock. During an upgrade, both the
        new release, which the inventory does not contain yet, and the previous release, which is still in use, are
        requested."""
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


class OwnFolder:
    """The folder of the login user's own environments, in the place of the default environment."""

    def __init__(self, action: ActionBase, task_vars: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
        self.action, self.vars, self.arguments = action, task_vars, dict(arguments)
        self.node: str = task_vars["inventory_hostname"]

    def work(self, step: str) -> dict[str, Any]:
        if step == "fetch":
            return {"skipped": True, "skip_reason": "an own folder has no wheels"}
        users = self.arguments["users_root"]
        arguments = {**self.arguments, "step": step, "root": users, "environments_root": users}
        found: dict[str, Any] = self.action._execute_module("pytorch_env", arguments, task_vars=self.vars)
        if not found.get("failed") and not ACCOUNT.fullmatch(str(found.get("login"))):
            return {"failed": True, "msg": f"{self.node}: the account has a name that is not valid for a folder."}
        return found

    def of_environments(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the environments in the folder. found: the result of this step."""
        login = found.get("login") or registered(self.vars, self.node, self.arguments["looks"])["login"]
        root = environments.own_root(self.arguments["users_root"], login)
        return {**self.arguments, "environments_root": root}


class ExistingSteps:
    def __init__(
        self, action: ActionBase, task_vars: Mapping[str, Any], arguments: Mapping[str, Any], name: str
    ) -> None:
        self.action, self.vars, self.arguments, self.name = action, task_vars, arguments, name
        self.node: str = task_vars["inventory_hostname"]
        self.path = environments.existing(arguments["environments"][name])

    def work(self, step: str) -> dict[str, Any]:
        """Store errors in the result, so that other environments continue."""
        if step != "look":
            return {"skipped": True, "skip_reason": "the environment is managed by the user"}
        ours = self._folder_of_muster()
        if ours:
            return self._refused(
                f"{self.path} is in {ours}, where Muster builds and removes environments. Use another path"
            )
        given = {"node": self.node, "prefix": self.path, "user": self.arguments.get("user", "nobody")}
        seen: dict[str, Any] = self.action._execute_module("existing_env", given, task_vars=self.vars)
        if seen.get("failed") or "marks" not in seen:
            return seen
        found = judge(self.path, seen)
        about = {"path": self.path, "made_by": found.made_by, "python": found.python, "torch": found.torch}
        if found.refusal:
            return {**self._refused(found.refusal), "existing": about}
        notes = [f"{self.node}: environment {self.name}: {note}." for note in found.notes]
        return {"changed": False, "existing": about, "warnings": notes}

    def _folder_of_muster(self) -> str:
        roots = [str(self.arguments.get(option) or "").rstrip("/") for option in ("root", "environments_root")]
        return next((root for root in roots if root and f"{self.path}/".startswith(f"{root}/")), "")

    def _refused(self, why: str) -> dict[str, Any]:
        return {"failed": True, "msg": f"{self.node}: environment {self.name}: {why}."}


class NamedSteps(EnvironmentSteps):
    """An environment of cluster_environments, with its own folder, source file and lock."""

    asked = RequestedPackages("", "", ())

    def __init__(
        self, action: ActionBase, task_vars: Mapping[str, Any], arguments: Mapping[str, Any], name: str
    ) -> None:
        own = dict(arguments)
        self.name = name
        self.entry: Mapping[str, Any] = own.pop("environments")[name]
        root = own.pop("environments_root")
        own["lock"] = lock_of(arguments, name, task_vars["inventory_dir"])
        super().__init__(action, task_vars, own)
        self.arguments.update(root=environments.folder_of(root, name), ranges=True)
        if "python" in self.entry:
            self.arguments["python"] = self.entry["python"]

    def work(self, step: str) -> dict[str, Any]:
        """Store errors in the result, so that other environments continue."""
        try:
            asked = self.asked = read(self.entry, self.vars["inventory_dir"])
            default = self.arguments["torch_version"]
            self.arguments.update(
                torch_version=asked.torch_version or default,
                variant=asked.variant or self.arguments.get("variant", "auto"),
                packages=list(asked.packages),
            )
            if asked.torch_version not in ("", default):
                # The build for the GPUs was selected for the default release.
                self.arguments["auto_variant"] = ""
            done = super().work(step)
        except (AnsibleActionFail, RequirementsError) as problem:
            done = {"failed": True, "msg": str(problem)}
        if "before" in done.get("diff", {}):
            done["diff"] |= dict.fromkeys(("before_header", "after_header"), f"environment {self.name}")
        if done.get("failed"):
            said = str(done.get("msg", "")).removeprefix(f"{self.node}: ")
            done["msg"] = (
                f"{self.node}: environment {self.name}:"
                f" {environments.in_its_words(said, self.name, self.entry, own=self.own)}"
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
