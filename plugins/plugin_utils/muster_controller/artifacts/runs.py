"""Folders of the artifacts of a run: artifacts/<cluster>/<run>/.

A run is one ansible-playbook process that inspected nodes or launched a program. The callback report creates the run's
id in ansible-playbook, and the forked processes of actions inherit it. A launch has the same id as its run.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from muster.launch.outcome import knows_less
from muster.launch.planned import LaunchPlan
from muster.report.run_verdict import joined
from muster.verdict.printable import printable
from muster_controller.playbook.terminal import terminal
from muster_node.tools import files
from muster_node.tools.process import LAUNCH_ID

from .ids import fresh_id
from .private_files import FOLDER, make_folder, point_latest, write_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from muster.verdict.finding import Verdict

    from .keeping import Keeping

VARIABLE = "MUSTER_RUN"


def begin() -> str:
    """Begin a run. Processes forked from this process belong to the same run."""
    os.environ[VARIABLE] = fresh_id()
    return os.environ[VARIABLE]


def run_id() -> str:
    """Return the id of this run. If the callback is not active, return an id for this process."""
    known = os.environ.get(VARIABLE, "")
    return known if LAUNCH_ID.match(known) else begin()


def run_folder(cluster_folder: Path) -> Path:
    """Return the folder of this run. Create the folder if it is missing, and update the link `latest`."""
    folder = cluster_folder / run_id()
    if not folder.is_dir():
        open_run(folder)
    return folder


def open_run(folder: Path) -> None:
    """Create the folder of a run or use the existing one. Remove other users' access to earlier runs."""
    make_folder(folder)
    for path in (folder.parent, *history(folder.parent)):
        if path.stat().st_mode & 0o077 and path.stat().st_uid == os.geteuid():
            path.chmod(FOLDER)
    point_latest(folder)


def launch_id(cluster_folder: Path) -> str:
    """Return the id of the next launch: the run's id, or a new id if the run already has a launch."""
    taken = (cluster_folder / run_id() / "plan.json").exists()
    return fresh_id() if taken else run_id()


def add_verdict(folder: Path, verdict: Mapping[str, Any], instead_of: Sequence[str] = ()) -> Verdict:
    """Merge the verdict of a step into the run's verdict.json, and return the merged verdict; see
    run_verdict.joined."""
    whole = joined(read_json(folder / "verdict.json"), verdict, instead_of)
    write_json(folder / "verdict.json", whole)
    return whole


def kept_plan(folder: Path) -> LaunchPlan | None:
    """Return the plan of a launch from the controller's artifacts, or None if the plan is missing or invalid."""
    try:
        return LaunchPlan.read(read_json(folder / "plan.json"))
    except ValueError:
        return None


def read_json(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file, or {} if it is missing or invalid."""
    try:
        content = json.loads(files.read(str(path)))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def history(cluster_folder: Path) -> Iterator[Path]:
    """Yield the folders of all runs, the newest first."""
    try:
        names = [
            entry.name
            for entry in os.scandir(cluster_folder)
            if LAUNCH_ID.match(entry.name) and entry.is_dir(follow_symlinks=False)
        ]
    except OSError:
        return
    for name in sorted(names, reverse=True):
        yield cluster_folder / name


def keep_verdict(folder: Path, verdict: Verdict, keeping: Keeping) -> None:
    """Write the verdict to the folder. If this fails, print the error and the verdict."""
    path = folder / "verdict.json"
    if knows_less(verdict, read_json(path)):
        keeping.say(f"The verdict in {path} is kept, because the outcome in it can no longer be determined")
        return
    lost = keeping.surely(path, lambda: add_verdict(folder, verdict, instead_of=("launch.", "smoke.")))
    if lost:
        keeping.say(f"Cannot write the verdict to {path}: {lost}. Verdict: {verdict['status']}: {verdict['summary']}")


def write_json(path: Path, value: Any) -> None:
    """Write a value as printable JSON, with commands of findings adapted to this terminal; see write_text."""
    text = json.dumps(terminal().shapes(value), indent=2, sort_keys=False, ensure_ascii=False)
    write_text(path, printable(text) + "\n")
