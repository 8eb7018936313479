"""Where the artifacts of a run are kept: artifacts/<cluster>/<run>/.

A run is one ansible-playbook that looked at nodes or launched something. Its id is made once, by the callback report in
ansible-playbook itself, and inherited by the processes in which the actions run. A launch has its run's.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from muster.launch.outcome import knows_less
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
    """Begin a run: every process that is forked from this one belongs to it."""
    os.environ[VARIABLE] = fresh_id()
    return os.environ[VARIABLE]


def run_id() -> str:
    """The id of this run. Where the callback is not enabled, that of this process alone."""
    known = os.environ.get(VARIABLE, "")
    return known if LAUNCH_ID.match(known) else begin()


def run_folder(cluster_folder: Path) -> Path:
    """The folder of this run, made where it is not there yet; `latest` points to it."""
    folder = cluster_folder / run_id()
    if not folder.is_dir():
        open_run(folder)
    return folder


def open_run(folder: Path) -> None:
    """Begin or go on with the run of this folder. What earlier runs left open to other users is closed."""
    make_folder(folder)
    for path in (folder.parent, *history(folder.parent)):
        if path.stat().st_mode & 0o077 and path.stat().st_uid == os.geteuid():
            path.chmod(FOLDER)
    point_latest(folder)


def launch_id(cluster_folder: Path) -> str:
    """What the next launch is called: as its run, whose artifacts are beside it. A second one gets an own name."""
    taken = (cluster_folder / run_id() / "plan.json").exists()
    return fresh_id() if taken else run_id()


def add_verdict(folder: Path, verdict: Mapping[str, Any], instead_of: Sequence[str] = ()) -> Verdict:
    """Add a step's verdict to the run's, which is kept in verdict.json and returned; see run_verdict.joined."""
    whole = joined(read_json(folder / "verdict.json"), verdict, instead_of)
    write_json(folder / "verdict.json", whole)
    return whole


def read_json(path: Path) -> dict[str, Any]:
    """What is in the file; nothing where there is none, or none that can be used."""
    try:
        content = json.loads(files.read(str(path)))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def history(cluster_folder: Path) -> Iterator[Path]:
    """The folders of all runs, the newest first."""
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
    """Keep it, or say that it is lost, where it was to go, and what it is."""
    path = folder / "verdict.json"
    if knows_less(verdict, read_json(path)):
        keeping.say(f"The verdict in {path} stays as it is: it says how the launch ended, which is not to be seen now")
        return
    lost = keeping.surely(path, lambda: add_verdict(folder, verdict, instead_of=("launch.", "smoke.")))
    if lost:
        keeping.say(f"The verdict is not in {path}: {lost}. It is: {verdict['status']}: {verdict['summary']}")


def write_json(path: Path, value: Any) -> None:
    """Write a value, printable, with the commands of its findings as they can be typed; see write_text."""
    text = json.dumps(terminal().shapes(value), indent=2, sort_keys=False, ensure_ascii=False)
    write_text(path, printable(text) + "\n")
