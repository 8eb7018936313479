"""An environment of conda packages on a node: looked at, unpacked at its path, and switched to.

It comes as one archive, in which every file already has this path in it where it has one; no conda is needed here.
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
    """The same folder, with environments that conda's own records describe."""

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
            return {"error": "there are no conda packages in it"}
        version = packages.get("python", "").split(".")
        found = {"python": ".".join(version[:2]), "packages": packages, "faults": faults, "error": ""}
        return {**found, "error": self._starts(environment)} if depth == "import" else found

    def _starts(self, environment: Path) -> str:
        """Why its Python does not start as the training user; "" where it does."""
        python = str(environment / "bin/python")
        done = run(python, "-I", "-c", "print('started')", seconds=STARTS, user=self.look_as.entry, most=10_000)
        said = done.why or (done.aside.strip().splitlines() or [f"exit status {done.code}"])[-1]
        return "" if done.code == 0 and done.text.strip() == "started" else f"its Python does not start: {said[:200]}"


class CondaManager:
    """params: the options of library/conda_env.py."""

    def __init__(self, root: CondaRoot, params: dict[str, Any]) -> None:
        self.root, self.params = root, params
        platform = PLATFORMS.get(os.uname().machine)
        if platform is None:
            raise RefusedError(f"there are no conda packages for a machine of the kind {os.uname().machine}")
        self.platform = platform
        sections = [section_of(given) for given in params["sections"]]
        section = next((one for one in sections if one.platform == platform), None)
        self.request: EnvironmentRequest | None = section.request() if section else None

    def look(self) -> dict[str, Any]:
        glibc = (os.confstr("CS_GNU_LIBC_VERSION") or "").rpartition(" ")[2]
        facts = {"platform": self.platform, "glibc": glibc, "kernel": os.uname().release}
        if self.request is None:
            # Which packages these are is found out by the controller; a check does not do that.
            plan = {"reasons": ["the lock has nothing for this request"], "build": "new", "switch": True, "remove": []}
            then = "the lock: every package, with its hash\n"
            diff = {"before": "the lock: nothing for this request\n", "after": then}
            return {"changed": True, "plan": plan, "diff": diff, "facts": facts}
        before, plan = self._plan(self.request)
        if plan.build:
            self.root.refuse_foreign()
        return {**self._result(self.request, before, plan), "facts": facts}

    def provide(self) -> dict[str, Any]:
        if self.request is None:
            raise RefusedError("there is no lock", "Run again")
        self.root.prepare()
        with self.root.lock(self.params["lock_timeout"]):
            before, plan = self._plan(self.request)
            for name in plan.discard:
                self.root.remove(name)
            if plan.build:
                self._unpack(plan.target)
            error = self.root.look(self.root.envs / plan.target, "import")["error"]
            if error:
                raise RefusedError(error, "Look at what it is asked for, and take it out of the inventory to remove it")
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
        """The archive is the controller's, and is compared with what it said before anything of it is used."""
        if name != self.params["target"]:
            raise RefusedError(f"it was put together for {self.params['target']}, and {name} is needed", "Run again")
        archive = self.root.root / STORE / "objects" / self.params["archive"]
        if sha256_of(archive) != self.params["archive"]:
            raise RefusedError(f"what came of it is not there, or not what was sent ({archive})", "Run again")
        path = self.root.envs / name
        try:
            path.mkdir(mode=0o755)
            unpack(archive, path)
        except (OSError, CondaError, tarfile.TarError) as problem:
            shutil.rmtree(path, ignore_errors=True)
            raise RefusedError(f"it cannot be unpacked ({problem})") from None

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
    """Unpack an environment as root's, after all of it was judged: CondaError, OSError, tarfile.TarError."""
    with tarfile.open(archive, "r:") as content:
        check_members(map(member_entry, content), str(path))
        for member in content:
            member.uid = member.gid = 0
            member.mode &= 0o755
            content.extract(member, path, numeric_owner=True)
