"""The watcher of a detached launch with restarts: an attached supervisor that lives on the launch's head node.

It runs there as one file (bundle.py), in a unit of its user's own manager, and logs in on the other nodes as that user.
Its attempts hold the leases of an attached launch, so that all of it ends within seconds of the watcher's own end.
"""

from __future__ import annotations

import base64
import json
import sys
from contextlib import suppress
from dataclasses import asdict, replace
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
from muster_node.distribution.manifest import ManifestFile
from muster_node.launch.watcher import SPEC, STATE
from muster_node.tools import files

from .mesh import Here, Login

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muster.launch.outcome import Record
    from muster_controller.playbook.node_error import Way

MOST_SPEC = 64_000_000  # bytes
BY_HAND = "ended by hand (launch_stop)"


class Brought(Project):
    """A project whose files are on the nodes already, and not here: nodes give them to those that lack some."""

    def read(self, _file: ManifestFile, _begin: int, _most: int) -> bytes:
        return b""  # where no node has it any more, what comes is refused there by its sha256


def spec_of(
    request: LaunchRequest,
    inventory: list[NodeSpec],
    settings: Settings,
    redaction: Redaction,
    ways: Mapping[str, Mapping[str, str]],
    head: str,
) -> dict[str, Any]:
    """What a watcher is told, as JSON has it. ways: {node: {address, interpreter}}."""
    project = settings.project
    # To the watcher, each attempt is one that it holds the lease of.
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
        self.record: Record | None = None
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

    def attempt(self, plan: dict[str, Any], earlier: tuple[str, ...], left: int) -> tuple[dict[str, Any], Record]:
        number = len(earlier) + 1
        kept = packed(masked(plan, self.redaction))
        began = {"number": number, "launch_id": plan["launch_id"], "plan": kept}
        # Said before anything begins: whoever ends the launch without its watcher knows what to end.
        self.note(attempts=[*self.state["attempts"], began][-MOST_ATTEMPTS:])
        supervisor = Supervisor(
            plan,
            {entry["node"]: self.ways[entry["node"]] for entry in plan["nodes"]},
            self.settings.of_attempt(earlier, left),
            Tails(plan, lambda *_line: None, self.redaction),
            self.say,
            interruption=self.whole.interruption,
        )
        supervisor.on_running = lambda: self.note(running=True)
        self.record = record = supervisor.launch()
        supervisor.messages.close()
        verdict = self.redaction.shape(outcome.judge(record, f"{ARTIFACTS}/{plan['launch_id']}/logs"))
        return {"verdict": verdict}, record

    def say(self, text: str) -> None:
        said = [*self.state["said"], self.redaction.text(text)[:MOST_TEXT]]
        over = max(0, len(said) - MOST_SAID)
        self.note(said=said[over:], first=self.state["first"] + over)

    def note(self, **what: Any) -> None:
        self.state.update(what)
        with suppress(OSError):  # memory is short: what it says next has all of it
            files.replace(str(self.folder / STATE), json.dumps(self.state).encode(), mode=0o600)


def main() -> None:
    folder = Path(sys.argv[1])
    spec = json.loads(files.read(str(folder / SPEC), most=MOST_SPEC))
    files.remove(str(folder / SPEC))
    Watcher(folder, spec).run()
