"""The lock of the PyTorch environments, and which node downloads; documented in library/pytorch_env.py."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from muster.pytorch import lock
from muster.pytorch.lock import Ask, LockError, Section
from muster_controller.sources import node_environment, pip_mirror
from muster_controller.variables import load_roles, read_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

OF_A_NODE = ("cluster_torch_version", "cluster_gpus", "pytorch_variant", "pytorch_packages")
# Nodes that try to download, one after the other. Where two of them cannot, the others will hardly fare better.
MOST_TRIES = 2
# Other nodes that are asked whether they have kept the wheels of the lock.
MOST_PEERS = 3
MOST_LINES = 12


class ActionModule(ActionBase):
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        self.vars: Mapping[str, Any] = task_vars or {}
        self.node: str = self.vars["inventory_hostname"]
        result: dict[str, Any] = super().run(tmp, task_vars)
        here = (self.vars, self._templar, self._loader, self.node)
        self.arguments = {"mirror": pip_mirror(*here), "environment": node_environment(*here), **self._task.args}
        looks = self.arguments.pop("looks", "")
        path = self.arguments.pop("lock", "")
        self.lock = LockFile(Path(path).expanduser()) if path else None
        try:
            result.update(self._provide(looks) if looks else self._look())
        except LockError as problem:
            result.update(failed=True, msg=f"{self.node}: {path}: {problem}")
        return result

    def _node(self, step: str, **more: Any) -> dict[str, Any]:
        arguments = {**self.arguments, "step": step, **more}
        answer: dict[str, Any] = self._execute_module("pytorch_env", arguments, task_vars=self.vars)
        if step != "look":
            answer.pop("diff", None)  # the look has shown it
        return answer

    def _look(self) -> dict[str, Any]:
        if self.lock is None or self.arguments.get("mode") == "verify":
            return self._node("look")
        return self._node("look", locked=[section.as_dict() for section in self.lock.read()])

    def _provide(self, register: str) -> dict[str, Any]:
        looks = self._needs(register)
        mine = looks[self.node]
        if not mine["build"]:
            return self._node("provide", locked=[mine["section"]] if mine["section"] else [])
        board = Board(self._task._uuid, mine["key"])
        failed = []
        for name in lock.ahead_of(self.node, looks)[:MOST_TRIES]:
            news = board.wait_for(name)
            if not news["failed"]:
                return self._node("provide", locked=[news["section"]], peers=self._peers(news["holders"]))
            failed.append(f"{name}: {news['failed'].removeprefix(name + ': ')}")
        if len(failed) == MOST_TRIES:
            raise AnsibleActionFail(
                f"{self.node}: nobody downloaded the wheels, and it was not tried here. {' '.join(failed)}"
            )
        with board.telling(self.node) as tell:
            return self._lead(mine, looks, tell)

    def _lead(self, mine: dict[str, Any], looks: Mapping[str, Any], tell: Callable[..., None]) -> dict[str, Any]:
        """Get the wheels here, write them down, and tell the nodes that wait for them."""
        known = [mine["section"]] if mine["section"] else []
        peers = self._peers(self._holders(mine["key"], looks)) if known else []
        fetched = self._node("fetch", locked=known, peers=peers)
        if fetched.get("failed"):
            tell(failed=str(fetched["msg"]))
            return fetched
        section = lock.section_of(fetched["section"])
        written: dict[str, Any] = {}
        if not known and self.lock is not None:
            written = self.lock.take(section, self._asks())
            self._say(written["locked"])
        tell(failed="", section=fetched["section"], holders=fetched["holders"])
        keep = self.node in fetched["holders"]
        result = {**self._node("provide", locked=[fetched["section"]], keep_wheels=keep), **written}
        if "wheels" in result:
            result["wheels"].update(fetched["wheels"])
        return result

    def _needs(self, register: str) -> dict[str, dict[str, Any]]:
        """What the look found that each node needs, in the order of the play."""
        found = {}
        for name in self.vars["ansible_play_batch"]:
            look = self.vars["hostvars"].raw_get(name).get(register, {})
            if "needs" in look and not look.get("failed"):
                found[name] = look["needs"]
        return found

    def _peers(self, names: list[str]) -> list[str]:
        """The nodes to ask for wheels: none where they lie in a folder of the node itself."""
        return [] if self.arguments.get("offline_dir") else names

    def _holders(self, key: str, looks: Mapping[str, Any]) -> list[str]:
        """Nodes that have the wheels of the lock, or may have kept them: the first ones of the inventory."""
        sure = [name for name, look in looks.items() if look["here"] and look["key"] == key]
        names = dict.fromkeys([*sure, *self.vars["groups"]["gpu_nodes"]])
        return [name for name in names if name != self.node][:MOST_PEERS]

    def _asks(self) -> list[Ask]:
        """What the inventory asks of every node."""
        roles = load_roles(self._loader, "cluster", "pytorch")
        asks = []
        for name in self.vars["groups"]["gpu_nodes"]:
            reading = read_node(self.vars, self._templar, roles, name, OF_A_NODE)
            for variable, error in reading.errors.items():
                raise AnsibleActionFail(f"{name}: {variable} {error}.")
            values = reading.values
            asks.append(
                Ask(
                    torch_version=values["cluster_torch_version"],
                    variant=values["pytorch_variant"],
                    gpus=values["cluster_gpus"],
                    packages=tuple(values["pytorch_packages"]),
                )
            )
        return list(dict.fromkeys(asks))

    def _say(self, changes: list[str]) -> None:
        more = len(changes) - MOST_LINES
        lines = [*changes[:MOST_LINES], *([f"and {more} more"] if more > 0 else [])]
        for line in lines:
            self._display.display(f"  {self.lock}: {line}")


class LockFile:
    """The lock beside the inventory."""

    def __init__(self, path: Path) -> None:
        # A link stays one.
        self.path = Path(os.path.realpath(path))

    def __str__(self) -> str:
        return self.path.name

    def read(self) -> tuple[Section, ...]:
        return self._parse(self._text())

    def take(self, section: Section, asks: list[Ask]) -> dict[str, Any]:
        """Write the section into it. Return what is different then."""
        with self._alone():
            before = self._text()
            sections = self._parse(before)
            updated = lock.updated(sections, section, asks)
            after = lock.render(updated)
            if after != before:
                self._write(after)
        path = str(self.path)
        return {
            "locked": lock.changes(sections, updated, section),
            "diff": {"before": before, "after": after, "before_header": path, "after_header": path},
        }

    def _text(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as problem:
            raise LockError(f"it cannot be read ({problem}). See pytorch_lock") from None

    def _parse(self, text: str) -> tuple[Section, ...]:
        try:
            return lock.parse(text)
        except LockError as problem:
            fix = "Bring it back from version control, or delete it: the next environment writes it anew"
            raise LockError(f"{problem}. {fix}") from None

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else writes it meanwhile: not a node with another Python, and no other run."""
        try:
            folder = os.open(self.path.parent, os.O_RDONLY)
        except OSError as problem:
            raise self._unwritable(problem) from None
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _write(self, text: str) -> None:
        try:
            # Ansible reads every file of an inventory's folder but for some endings, of which this is one.
            handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}-", suffix=".txt")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary = Path(name)
            temporary.chmod(0o644)
            temporary.replace(self.path)
        except OSError as problem:
            raise self._unwritable(problem) from None

    def _unwritable(self, problem: OSError) -> LockError:
        return LockError(
            f"it cannot be written ({problem.strerror}). Set pytorch_lock to a place where it can, or to ''"
        )


class Board:
    """Where the node that downloads says how it went: files on the controller that last as long as the run."""

    def __init__(self, task: str, key: str) -> None:
        self.folder = Path(constants.DEFAULT_LOCAL_TMP) / f"pytorch-{task}"
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.key = key
        self.parent = os.getppid()

    def _path(self, name: str) -> Path:
        return self.folder / hashlib.sha256(f"{self.key}\n{name}".encode()).hexdigest()

    def wait_for(self, name: str) -> dict[str, Any]:
        """Wait until that node has told. It is at work already: Ansible begins with the nodes in their order."""
        path = self._path(name)
        while not path.exists():
            if os.getppid() != self.parent:
                raise AnsibleActionFail("The run was ended.")
            time.sleep(0.3)
        news: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return news

    @contextlib.contextmanager
    def telling(self, name: str) -> Iterator[Callable[..., None]]:
        """Yield what this node tells with. It has told at the latest when it ends, in whatever way."""
        path = self._path(name)

        def tell(**news: Any) -> None:
            if not path.exists():
                beside = path.with_suffix(".new")
                beside.write_text(json.dumps(news), encoding="utf-8")
                beside.replace(path)

        try:
            yield tell
        finally:
            tell(failed="it broke off")
