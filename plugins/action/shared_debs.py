"""Decides which node downloads what; documented in library/shared_debs.py."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from muster.packages.debs import Deb, share

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PAUSE = 0.3
# Nodes that may have the files from an earlier day. One that does not answer costs ten seconds.
OF_OLD = 2
NOTHING: Mapping[str, Any] = {"changed": False, "fetched": [], "downloaded": [], "tried": [], "why": ""}


class ActionModule(ActionBase):
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        task_vars = task_vars or {}
        result: dict[str, Any] = super().run(tmp, task_vars)
        nodes = task_vars["groups"].get("gpu_nodes", [])
        if self._task.check_mode or len(nodes) < 2:
            result.update(NOTHING)
            return result
        look = self._ask("look", task_vars)
        if look.get("failed") or look.get("unreachable"):
            result.update(look)
            return result
        if not look["debs"]:
            result.update(NOTHING, why=look["why"])
            return result
        table = Table(Path(constants.DEFAULT_LOCAL_TMP) / f"debs-{self._task._uuid}")
        node = task_vars["inventory_hostname"]
        try:
            mine = table.claim(node, [Deb(**deb) for deb in look["debs"]])
            for holder in mine.others:
                table.wait_for(holder)
            old = [name for name in nodes if name != node and not table.works(name)][:OF_OLD]
            others = [deb for debs in mine.others.values() for deb in debs]
            wanted = [*others, *(mine.own if old else ())]
            result.update(
                self._ask(
                    "get",
                    task_vars,
                    peers=[*mine.others, *old],
                    files=[{"name": deb.name, "sha256": deb.sha256} for deb in wanted],
                )
            )
        finally:
            table.done(node)
        result.pop("invocation", None)
        return result

    def _ask(self, step: str, task_vars: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        arguments = {**self._task.args, "step": step, **more}
        answer: dict[str, Any] = self._execute_module(
            module_name="shared_debs", module_args=arguments, task_vars=task_vars
        )
        return answer


class Table:
    """What the nodes' workers, which are processes of one run, know of each other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def claim(self, node: str, needed: list[Deb]) -> Any:
        with self._alone():
            path = self.folder / "claims.json"
            claims: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
            mine = share(node, needed, claims)
            path.write_text(json.dumps(claims))
            (self.folder / f"{node}.pid").write_text(str(os.getpid()))
        return mine

    def works(self, node: str) -> bool:
        """Whether the node is at this task now, or was: what it has is known, and it is not asked for more."""
        return (self.folder / f"{node}.pid").exists()

    def wait_for(self, node: str) -> None:
        """Wait until the node has what it claimed, or gave up, or nobody works for it any more."""
        worker, parent = int((self.folder / f"{node}.pid").read_text()), os.getppid()
        while not (self.folder / f"{node}.done").exists() and _runs(worker):
            if os.getppid() != parent:
                raise AnsibleActionFail("The run was ended.")
            time.sleep(PAUSE)

    def done(self, node: str) -> None:
        (self.folder / f"{node}.done").touch()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # One that ended, and whose end nobody has taken note of yet, is a zombie.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except OSError:
        return True  # a controller without /proc, where no more can be known
