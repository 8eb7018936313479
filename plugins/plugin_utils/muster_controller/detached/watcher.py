"""The watcher of a detached launch with restarts: a supervisor that runs on the launch's head node.

It runs as one file (see handing_over.py) in a unit of its user's systemd manager, and logs in to the other nodes as
that user. Its attempts use leases, like an attached launch. If the watcher ends, all processes of the launch therefore
end within seconds.
"""

from __future__ import annotations

import base64
import json
import shlex
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.launch import outcome
from muster.launch.plan import LaunchRequest, NodeSpec, build_plan, masked
from muster.launch.watched import ARTIFACTS, MOST_ATTEMPTS, MOST_SAID, MOST_TEXT
from muster.verdict.redaction import Redaction
from muster_controller.launch.attempts import Attempts
from muster_controller.launch.elsewhere import packed
from muster_controller.launch.project import Project
from muster_controller.launch.settings import Settings
from muster_controller.launch.supervisor import Supervisor
from muster_controller.launch.tails import Tails
from muster_controller.playbook.interruption import Interruption
from muster_controller.playbook.node_error import NodeError, one_line
from muster_node.distribution.manifest import ManifestFile
from muster_node.launch.mesh import environment, log_in
from muster_node.launch.watcher import SPEC, STATE
from muster_node.tools import files
from muster_node.tools.run import run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muster.launch.outcome import LaunchRecord
    from muster.launch.planned import LaunchPlan
    from muster_controller.playbook.node_error import Way


SECONDS = 900.0  # longer than systemd needs to stop a unit; ssh detects a lost node much earlier
MOST = 64_000_000  # bytes of a response
NO_LOGIN = 255  # exit code of ssh if the login failed


# ---------------------------------------------------------------- mesh

# Access of a watcher on the head node to the nodes of its launch: over SSH, or locally.


@dataclass(frozen=True)
class Login:
    """Access to another node over a shared SSH connection. control: path of its socket."""

    name: str
    address: str
    interpreter: str
    control: str

    def python(self, arguments: str, text: bytes, *, privileged: bool) -> tuple[int, str, str]:
        _refuse(self.name, privileged=privileged)
        shared = ("ControlMaster=auto", f"ControlPath={self.control}", "ControlPersist=60")
        command = f"{self.interpreter} {arguments}"
        done = log_in(self.address, command, text, options=shared, seconds=SECONDS, most=MOST)
        if done.code is None or done.code == NO_LOGIN:
            raise NodeError(one_line(done.aside or done.why), reachable=False)
        return done.code, done.text, done.aside

    def beside(self) -> Login:
        """Return this object, which can be shared between threads because each command has its own session."""
        return self


@dataclass(frozen=True)
class Here:
    """Access to this node."""

    name: str
    interpreter: str

    def python(self, arguments: str, text: bytes, *, privileged: bool) -> tuple[int, str, str]:
        _refuse(self.name, privileged=privileged)
        words = shlex.split(arguments)
        done = run(self.interpreter, *words, stdin=text, seconds=SECONDS, env=environment(), most=MOST)
        if done.code is None:
            raise NodeError(one_line(done.why), reachable=True)
        return done.code, done.text, done.aside

    def beside(self) -> Here:
        return self


def _refuse(name: str, *, privileged: bool) -> None:
    if privileged:
        raise NodeError(f"a user launch cannot run commands as root on {name}", reachable=True)


MOST_SPEC = 64_000_000  # bytes
BY_HAND = "ended by hand (launch_stop)"


class Brought(Project):
    """A project whose files are only on the nodes. Nodes that have the files send them to the other nodes."""

    def read(self, _file: ManifestFile, _begin: int, _most: int) -> bytes:
        return b""  # if no node has the file any more, the node rejects this by its sha256


def spec_of(
    request: LaunchRequest,
    inventory: list[NodeSpec],
    settings: Settings,
    redaction: Redaction,
    ways: Mapping[str, Mapping[str, str]],
    head: str,
) -> dict[str, Any]:
    """Return the specification of a watcher, as JSON data. ways: {node: {address, interpreter}}."""
    project = settings.project
    # The watcher holds the lease of each attempt.
    attended = replace(request, options=replace(request.options, detached=False))
    return {
        "request": asdict(attended),
        "inventory": [asdict(node) for node in inventory],
        "script_name": settings.script_name,
        "script_body": base64.b64encode(settings.script_body).decode(),
        "begun_here": sorted(settings.begun_here),
        "project": project and {**vars(project), "manifest": base64.b64encode(project.manifest).decode()},
        "secrets": redaction.values,
        "ways": ways,
        "head": head,
    }


def settings_in(spec: Mapping[str, Any], request: LaunchRequest) -> Settings:
    project = spec["project"]
    return Settings(
        request.options,
        request.cluster,
        spec["script_name"],
        base64.b64decode(spec["script_body"]),
        frozenset(spec["begun_here"]),
        project=project
        and Brought(
            project["source"], base64.b64decode(project["manifest"]), tuple(ManifestFile(*f) for f in project["files"])
        ),
    )


class Watcher:
    def __init__(self, folder: Path, spec: Mapping[str, Any]) -> None:
        self.folder = folder
        self.redaction = Redaction(spec["secrets"])
        self.request = LaunchRequest.read(spec["request"])
        self.settings = settings_in(spec, self.request)
        self.state: dict[str, Any] = {"first": 0, "said": [], "attempts": [], "running": False, "result": None}
        self.ways: dict[str, Way] = {
            name: Here(name, way["interpreter"])
            if name == spec["head"]
            else Login(name, way["address"], way["interpreter"], f"{folder}/{number}")
            for number, (name, way) in enumerate(spec["ways"].items())
        }
        self.record: LaunchRecord | None = None
        self.whole = Attempts(
            self.request,
            [NodeSpec(**node) for node in spec["inventory"]],
            build=lambda request, nodes: build_plan(request, list(nodes)),
            run=self.attempt,
            connect=self.ways.__getitem__,
            say=self.say,
            interruption=Interruption(BY_HAND),
        )

    def run(self) -> None:
        result = self.whole.see_through(build_plan(self.request, list(self.whole.inventory)))
        left = self.record is not None and bool(self.record.leftovers or self.record.unseen)
        attempts = [self.redaction.shape(one) for one in result["attempts"]]
        self.note(result={"verdict": result["verdict"], "attempts": attempts, "left": left})

    def attempt(self, plan: LaunchPlan, earlier: tuple[str, ...], left: int) -> tuple[dict[str, Any], LaunchRecord]:
        number = len(earlier) + 1
        kept = packed(masked(plan, self.redaction))
        began = {"number": number, "launch_id": plan.launch_id, "plan": kept}
        # Recorded before the start, so that the launch can be stopped without its watcher.
        self.note(attempts=[*self.state["attempts"], began][-MOST_ATTEMPTS:])
        supervisor = Supervisor(
            plan,
            {name: self.ways[name] for name in plan.names},
            self.settings.of_attempt(earlier, left),
            Tails(plan, lambda *_line: None, self.redaction),
            self.say,
            interruption=self.whole.interruption,
        )
        supervisor.on_running = lambda: self.note(running=True)
        self.record = record = supervisor.launch()
        supervisor.messages.close()
        verdict = self.redaction.shape(outcome.judge(record, f"{ARTIFACTS}/{plan.launch_id}/logs"))
        return {"verdict": verdict}, record

    def say(self, text: str) -> None:
        said = [*self.state["said"], self.redaction.text(text)[:MOST_TEXT]]
        over = max(0, len(said) - MOST_SAID)
        self.note(said=said[over:], first=self.state["first"] + over)

    def note(self, **what: Any) -> None:
        self.state.update(what)
        with suppress(OSError):  # no space: the next note contains this one
            files.replace(str(self.folder / STATE), json.dumps(self.state).encode(), mode=0o600)


def main() -> None:
    folder = Path(sys.argv[1])
    spec = json.loads(files.read(str(folder / SPEC), most=MOST_SPEC))
    files.remove(str(folder / SPEC))
    Watcher(folder, spec).run()
