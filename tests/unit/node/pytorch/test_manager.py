"""Results of the environment manager, with stubs of the environments folder and of pip."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from ansible.module_utils.muster.pytorch.plan import EnvironmentPlan, Observed
from ansible.module_utils.muster.pytorch.request import make_request
from ansible.module_utils.muster_node.pytorch.manager import EnvironmentManager
from ansible.module_utils.muster_node.pytorch.root import Interpreter
from ansible.module_utils.muster_node.tools.result import RefusedError

if TYPE_CHECKING:
    from pathlib import Path


LOCK = 7


class Folder:
    """Stub of the environments folder. `done` lists the actions."""

    def __init__(self, path: Path) -> None:
        self.root, self.envs, self.link = path, path / "envs", path / "current"
        self.look_as = SimpleNamespace(name="nobody")
        self.done: list[str] = []

    def remove(self, name: str) -> None:
        self.done.append(f"remove {name}")

    def build(self) -> dict[str, list[str]]:
        self.done.append("build")
        return {"came_from": ["index"]}

    def switch(self, name: str) -> None:
        self.done.append(f"switch to {name}")

    def in_use(self) -> set[str]:
        return {"old"}

    def look(self, _path: Path, _how: str) -> dict[str, Any]:
        return {"error": "No module named torch"}


def manager(folder: Folder, plan: EnvironmentPlan, **params: Any) -> EnvironmentManager:
    made = EnvironmentManager.__new__(EnvironmentManager)
    parts: Any = made
    parts.root, parts.forgotten = folder, SimpleNamespace(names=[], remove=lambda: None)
    parts.params = {"node": "node1", "switch": "always", "keep_wheels": False, "lock": "", **params}
    parts.request = make_request(torch_version="2.13.0", variant="cpu", gpus=0, packages=[], python="3.12")
    parts.choice = SimpleNamespace(section=None)
    parts._plan = lambda: (Observed(current="old"), plan)
    parts._alone = Alone
    parts._build = lambda _plan, _lock: folder.build()
    return made


class Alone:
    def __enter__(self) -> int:
        return LOCK

    def __exit__(self, *_exc: object) -> None:
        """The lock is free."""


@pytest.mark.parametrize(
    ("plan", "done", "changed"),
    [
        (EnvironmentPlan("new", build=True), ["build"], True),
        (EnvironmentPlan("new", discard=("broken",)), ["remove broken"], True),
        (EnvironmentPlan("new", discard=("broken",), build=True), ["remove broken", "build"], True),
        (EnvironmentPlan("new", switch=True), [], False),
    ],
)
def test_unusable_environment_is_built_but_not_switched_to(
    tmp_path: Path, plan: EnvironmentPlan, done: list[str], *, changed: bool
) -> None:
    folder = Folder(tmp_path)
    with pytest.raises(RefusedError, match=r"^PyTorch cannot be used: No module named torch\. ") as refused:
        manager(folder, plan).provide()
    assert (refused.value.more["changed"], folder.done) == (changed, done)
    assert [finding["id"] for finding in refused.value.more["findings"]] == ["torch.import"]


@pytest.mark.parametrize(
    ("switch", "done"), [("always", ["switch to new", "remove older"]), ("never", []), ("idle", None)]
)
def test_switch_option_determines_when_the_link_changes(tmp_path: Path, switch: str, done: list[str] | None) -> None:
    folder = Folder(tmp_path)
    plan = EnvironmentPlan("new", switch=True, retire=("older",))
    made = manager(folder, plan, switch=switch)
    if done is None:
        with pytest.raises(RefusedError, match=r"^a process uses old, so .*/current still points to it\. Wait until"):
            made._switch(plan, Observed(current="old"))
    else:
        made._switch(plan, Observed(current="old"))
    assert folder.done == (done or [])


@pytest.mark.parametrize(
    ("users_root", "fix"),
    [
        ("", "Run the baseline first: "),
        ("/var/lib/muster/users", "An administrator must run site.yml"),
    ],
)
def test_missing_system_package_is_reported_with_who_installs_it(tmp_path: Path, users_root: str, fix: str) -> None:
    made = manager(Folder(tmp_path), EnvironmentPlan("new", build=True), users_root=users_root, python="python3")
    made.python = Interpreter("3.12", "x86_64", ensurepip="")
    with pytest.raises(RefusedError, match=f"python3-venv is missing. {fix}"):
        made._need_venv()
