"""Manage a node's PyTorch environments: either in the steps look, fetch and provide, or only verify."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ansible.module_utils.muster.pytorch import judge as judging
from ansible.module_utils.muster.pytorch import lock as pytorch_lock
from ansible.module_utils.muster.pytorch import plan as planning
from ansible.module_utils.muster.pytorch.choice import Ask, choose
from ansible.module_utils.muster.pytorch.wheels import WheelNeed
from ansible.module_utils.muster.verdict.commands import playbook
from ansible.module_utils.muster.verdict.finding import Finding, with_fix

from ..tools.result import RefusedError
from .memory import Forgotten
from .root import Interpreter, PytorchRoot, ask_python
from .wheelhouse import Wheelhouse, sources_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible.module_utils.muster.pytorch.request import EnvironmentRequest

# Measured with PyTorch 2.9 to 2.13. A lock contains no sizes.
WHEELS = "one node downloads the wheels, 2.5 to 4 GB for a CUDA build and less for a CPU build; the size is not known"


def ask_of(params: dict[str, Any]) -> Ask:
    asked = {name: params[name] for name in ("torch_version", "variant", "gpus")}
    packages, package = tuple(params["packages"]), params["package"]
    return Ask(**asked, packages=packages, auto=params["auto_variant"], ranges=params["ranges"], package=package)


def verify(root: PytorchRoot, params: dict[str, Any]) -> dict[str, Any]:
    """Check the environment that the link points to, regardless of who built the environment."""
    look = root.look(root.link, "import")
    if "packages" not in look and not root.link.exists():
        look["error"] = f"no environment at {root.link}"
    # The site may have built it with a Python other than the node's.
    request = ask_of(params).request(look.get("python", "3.10"))
    findings = judging.judge(params["node"], request, look)
    result = {
        "changed": False,
        "environment": str(root.link.resolve()),
        "torch": _shown(look, root.look_as.name),
        "findings": [finding.as_dict() for finding in findings],
    }
    _refuse_failures(findings, result)
    return result


class EnvironmentManager:
    """Builds the requested environment. params: options of library/pytorch_env.py."""

    def __init__(self, root: PytorchRoot, params: dict[str, Any], *, check: bool) -> None:
        self.root = root
        self.params = params
        self.check = check
        self.python: Interpreter = ask_python(params["python"])
        locked, reviewed = ([*map(pytorch_lock.section_of, params[name])] for name in ("locked", "reviewed"))
        self.choice = choose(locked, ask_of(params), self.python.version, self.python.machine, reviewed)
        self.request: EnvironmentRequest = self.choice.request
        self.house = Wheelhouse(root, params, self.request, self.python)
        declared = params["environments"]
        self.forgotten = Forgotten(params["environments_root"], declared, root.look_as)

    def look(self) -> dict[str, Any]:
        sources_of(self.request, self.params)  # rejects invalid URLs in check mode, too
        before, plan = self._plan()
        look: dict[str, Any] = {}
        if plan.build:
            self.root.refuse_foreign()
            self.house.judge_folders()
        if plan.build and (not self.check or self.params["users_root"]):
            self._need_venv()
        if not plan.build:
            full = self.params["full_look"]
            look = self.root.look(self.root.envs / plan.target, "import") if full else self.root.looks[plan.target]
        section = self.choice.section
        need = WheelNeed(
            build=plan.build,
            key=" ".join((self.request.name, self.python.machine, section.digest if section else "")),
            here=section is not None and self.house.has(section),
            section=section.as_dict() if section else None,
        )
        result = {**self._result(before, plan, look), "needs": asdict(need)}
        notes = (self.choice.note, *self.forgotten.notes)
        result["notes"] = [f"{self.params['node']}: {note}." for note in notes if note]
        return result

    def fetch(self) -> dict[str, Any]:
        """Download the wheels for this node and for other nodes. If the wheels are not locked yet, resolve the request
        first."""
        section, came_from = self.choice.section, [self._upstream]
        with self._alone() as lock:
            if section is None:
                section = self.house.resolve(lock)
            else:
                missing = self.house.missing(section)
                if missing:
                    self.house.download(section, missing, lock)
                else:
                    came_from = ["here"]
        return {"changed": True, "section": section.as_dict(), "wheels": {"came_from": came_from}}

    def provide(self) -> dict[str, Any]:
        wheels: dict[str, Any] = {}
        with self._alone() as lock:
            # Another run may have done the work while it held the lock.
            before, plan = self._plan()
            for name in plan.discard:
                self.root.remove(name)
            if plan.build:
                wheels = self._build(plan, lock)
            look = self.root.look(self.root.envs / plan.target, "import")
            findings = judging.judge(self.params["node"], self.request, look)
            done = plan.build or bool(plan.discard)
            _refuse_failures(findings, {"changed": done, "findings": [finding.as_dict() for finding in findings]})
            self._switch(plan, before)
        self.forgotten.remove()
        result = self._result(before, plan, look)
        if wheels:
            result["wheels"] = wheels
        return result

    @contextlib.contextmanager
    def _alone(self) -> Iterator[int]:
        self.root.prepare()
        with self.root.lock(self.params["lock_timeout"]) as lock:
            yield lock

    @property
    def _upstream(self) -> str:
        return "folder" if self.params["offline_dir"] else "index"

    def _build(self, plan: planning.EnvironmentPlan, lock: int) -> dict[str, Any]:
        section = self.choice.section
        if section is None:
            raise RefusedError("the request changed during the run", "Run again")
        missing = self.house.missing(section)
        self.root.build(
            plan.target,
            self.params["python"],
            lambda path: self.house.install(path, section, lock, complete=not missing),
            lock,
        )
        return {
            "came_from": [self._upstream if missing else "here"],
            "kept": str(self.house.path(section)) if self.params["keep_wheels"] else "",
        }

    def _switch(self, plan: planning.EnvironmentPlan, before: planning.Observed) -> None:
        when = self.params["switch"]
        if plan.switch and when == "idle" and before.current in self.root.in_use():
            raise RefusedError(
                f"a process uses {before.current}, so {self.root.link} still points to it",
                "Wait until the process has ended, and run this again",
            )
        if plan.switch and when != "never":
            self.root.switch(plan.target)
        # The environment in use until the switch is kept for a rollback; older ones are removed.
        for name in plan.retire if when != "never" else ():
            self.root.remove(name)
        if self.choice.section and plan.build:
            self.house.tidy(self.choice.section.digest if self.params["keep_wheels"] else "")

    def _need_venv(self) -> None:
        # In check mode, the baseline may not have been applied yet. A user cannot apply it.
        if not self.python.ensurepip:
            baseline = f"Run the baseline first: {playbook('site.yml', tags='baseline')}"
            raise RefusedError(
                f"{self.params['python']} cannot create a virtual environment: python3-venv is missing",
                "An administrator must run site.yml --tags baseline" if self.params["users_root"] else baseline,
            )

    def _plan(self) -> tuple[planning.Observed, planning.EnvironmentPlan]:
        before = self.root.observe(self.request, self.params["keep"])
        return before, planning.plan(self.request, before, self.params["keep"])

    def _result(
        self, before: planning.Observed, plan: planning.EnvironmentPlan, look: dict[str, Any]
    ) -> dict[str, Any]:
        findings = judging.judge(self.params["node"], self.request, look) if look else []
        forget = self.forgotten.names
        result = {
            "changed": plan.changed or bool(forget),
            "environment": str(self.root.envs / plan.target),
            "forget": forget,
            "changes": {
                "environment": [
                    *([str(self.root.envs / plan.target)] if plan.build else []),
                    *(f"removed: {name}" for name in (*plan.discard, *plan.retire, *forget)),
                ],
                "file": [str(self.root.link)] if plan.switch else [],
                "unknown": [WHEELS] if plan.build else [],
            },
            "plan": {
                "reasons": [*plan.reasons, *self.forgotten.reasons],
                "build": plan.target if plan.build else "",
                "switch": plan.switch,
                "remove": [*plan.discard, *plan.retire],
            },
            "diff": planning.difference(self.request, before, plan, lock=bool(self.params["lock"]), forget=forget),
            "torch": _shown(look, self.root.look_as.name),
            "findings": [finding.as_dict() for finding in findings],
        }
        _refuse_failures(findings, result)
        return result


def _shown(look: dict[str, Any], looked_as: str) -> dict[str, Any]:
    """Return the part of the result about torch; {} if torch is missing."""
    if not look.get("torch"):
        return {}
    same = {key: look[key] for key in ("packages", "imported")}
    return {**look["torch"], **same, "python": look["python_full"], "looked_as": looked_as}


def _refuse_failures(findings: list[Finding], result: dict[str, Any]) -> None:
    for finding in findings:
        if finding.status == "fail":
            sentence = with_fix(finding).removeprefix(f"{finding.node}: ")
            raise RefusedError(sentence, **result)
