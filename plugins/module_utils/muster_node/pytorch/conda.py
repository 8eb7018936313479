"""Inspect a conda environment on a node, unpack it at its final path, and switch to it.

The environment arrives as one archive. Its files already contain the final path where needed, so the node does not need
conda.
"""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from typing import TYPE_CHECKING, Any

from ansible.module_utils.muster.pytorch import plan as planning
from ansible.module_utils.muster.pytorch.conda import PLATFORMS, CondaError, section_of
from ansible.module_utils.muster.pytorch.conda_contents import check_members, member_entry

from ..tools import files
from ..tools.result import RefusedError
from ..tools.run import run
from .memory import STORE
from .root import PytorchRoot
from .wheelhouse import sha256_of

if TYPE_CHECKING:
    from pathlib import Path

    from ansible.module_utils.muster.pytorch.request import EnvironmentRequest

MOST_RECORD = 20_000_000
STARTS = 60.0


class CondaRoot(PytorchRoot):
    """PytorchRoot for conda environments, which are inspected through conda's own records."""

    def look(self, environment: Path, depth: str) -> dict[str, Any]:
        packages: dict[str, str] = {}
        faults: list[str] = []
        for path in sorted((environment / "conda-meta").glob("*.json")):
            try:
                record = json.loads(files.read(str(path), most=MOST_RECORD))
                name = str(record["name"])
                packages[name] = f"{record['version']}_{record['build']}"
                gone = next((each for each in record["files"] if not os.path.lexists(environment / each)), None)
            except (OSError, ValueError, KeyError, TypeError) as problem:
                faults.append(f"{path.name} cannot be read ({type(problem).__name__})")
                continue
            if gone is not None:
                faults.append(f"{name}: {gone} is missing")
        if not packages:
            return {"error": "no conda packages found"}
        version = packages.get("python", "").split(".")
        found = {"python": ".".join(version[:2]), "packages": packages, "faults": faults, "error": ""}
        return {**found, "error": self._starts(environment)} if depth == "import" else found

    def _starts(self, environment: Path) -> str:
        """Return the reason why the environment's Python cannot start as the training user; "" if it can."""
        python = str(environment / "bin/python")
        done = run(python, "-I", "-c", "print('started')", seconds=STARTS, user=self.look_as.entry, most=10_000)
        said = done.why or (done.aside.strip().splitlines() or [f"exit status {done.code}"])[-1]
        return "" if done.code == 0 and done.text.strip() == "started" else f"Python cannot start: {said[:200]}"


class CondaManager:
    """Manages the conda environments of a node. params: options of library/conda_env.py."""

    def __init__(self, root: CondaRoot, params: dict[str, Any]) -> None:
        self.root, self.params = root, params
        platform = PLATFORMS.get(os.uname().machine)
        if platform is None:
            raise RefusedError(f"no conda packages exist for {os.uname().machine} machines")
        self.platform = platform
        sections = [section_of(given) for given in params["sections"]]
        section = next((one for one in sections if one.platform == platform), None)
        self.request: EnvironmentRequest | None = section.request() if section else None

    def look(self) -> dict[str, Any]:
        glibc = (os.confstr("CS_GNU_LIBC_VERSION") or "").rpartition(" ")[2]
        facts = {"platform": self.platform, "glibc": glibc, "kernel": os.uname().release}
        if self.request is None:
            # The controller resolves the packages, but not in check mode.
            plan = {
                "reasons": ["the lock does not contain this environment"],
                "build": "new",
                "switch": True,
                "remove": [],
            }
            then = "the lock: every package with its hash\n"
            diff = {"before": "the lock: environment missing\n", "after": then}
            return {"changed": True, "plan": plan, "diff": diff, "facts": facts}
        before, plan = self._plan(self.request)
        if plan.build:
            self.root.refuse_foreign()
        return {**self._result(self.request, before, plan), "facts": facts}

    def provide(self) -> dict[str, Any]:
        if self.request is None:
            raise RefusedError("the lock is missing", "Run again")
        self.root.prepare()
        with self.root.lock(self.params["lock_timeout"]):
            before, plan = self._plan(self.request)
            for name in plan.discard:
                self.root.remove(name)
            if plan.build:
                self._unpack(plan.target)
            error = self.root.look(self.root.envs / plan.target, "import")["error"]
            if error:
                raise RefusedError(error, "Check the packages of the environment, or remove it from the inventory")
            if plan.switch:
                self.root.switch(plan.target)
            for name in plan.retire:
                self.root.remove(name)
            shutil.rmtree(self.root.root / STORE, ignore_errors=True)
        return self._result(self.request, before, plan)

    def _plan(self, request: EnvironmentRequest) -> tuple[planning.Observed, planning.EnvironmentPlan]:
        before = self.root.observe(request, self.params["keep"])
        return before, planning.plan(request, before, self.params["keep"])

    def _unpack(self, name: str) -> None:
        """Compare the controller's archive with the announced digest, then unpack the archive."""
        if name != self.params["target"]:
            raise RefusedError(f"the archive is for {self.params['target']}, not for {name}", "Run again")
        archive = self.root.root / STORE / "objects" / self.params["archive"]
        if sha256_of(archive) != self.params["archive"]:
            raise RefusedError(f"the received archive is missing or corrupt ({archive})", "Run again")
        path = self.root.envs / name
        try:
            path.mkdir(mode=0o755)
            unpack(archive, path)
        except (OSError, CondaError, tarfile.TarError) as problem:
            shutil.rmtree(path, ignore_errors=True)
            raise RefusedError(f"the archive cannot be unpacked ({problem})") from None

    def _result(
        self, request: EnvironmentRequest, before: planning.Observed, plan: planning.EnvironmentPlan
    ) -> dict[str, Any]:
        return {
            "changed": plan.changed,
            "environment": str(self.root.envs / plan.target),
            "plan": {
                "reasons": list(plan.reasons),
                "build": plan.target if plan.build else "",
                "switch": plan.switch,
                "remove": [*plan.discard, *plan.retire],
            },
            "diff": planning.difference(request, before, plan, lock=False),
        }


def unpack(archive: Path, path: Path) -> None:
    """Validate an archive, then unpack it as root. Raises CondaError, OSError, tarfile.TarError."""
    with tarfile.open(archive, "r:") as content:
        check_members(map(member_entry, content), str(path))
        for member in content:
            member.uid = member.gid = 0
            member.mode &= 0o755
            content.extract(member, path, numeric_owner=True)
