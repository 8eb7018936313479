"""Fetches result files from the working folders of a finished launch, into artifacts/<cluster>/<id>/fetched/NODE.

muster/launch/fetched.py selects the files and their local names. All times are on the monotonic clock.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from muster.launch.fetched import Fetched, Part, choose, listing_of, parts_of
from muster.launch.plan import fetch_of
from muster_controller.artifacts.private_files import append, make_folder
from muster_controller.nodes.program import NodeProgram
from muster_node.tools import files

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from muster.launch.fetched import FetchedFile, Listing
    from muster.launch.options import LaunchOptions
    from muster.launch.planned import LaunchPlan, PlannedFetch
    from muster_controller.artifacts.keeping import Keeping
    from muster_controller.nodes.messages import Messages, NodeReply

PROGRAM = NodeProgram("jobs")
FOLDER = "fetched"
LIST_TIMEOUT = 60.0
SILENCE = 60.0  # seconds without a response after which a node's files are not fetched
PART_BYTES = 12 * 1024 * 1024
MOST_WANTED = 500  # files in one message
WRITING = 60.0  # seconds for the controller's file system to write one part
SAID_EVERY = 10.0
GIVEN_UP = "fetching was interrupted"


def with_patterns(plan: LaunchPlan, options: LaunchOptions) -> LaunchPlan:
    """Return the plan with the patterns of this command, if it has any, in place of those given at the start."""
    if not options.fetch:
        return plan
    found = fetch_of(options)
    return replace(plan, fetch={**found, "folder": found["folder"] or (plan.fetch or found)["folder"]})


class Rest:
    """The files that are still to be fetched from a node."""

    def __init__(self, todo: list[FetchedFile]) -> None:
        self.todo = todo
        self.offset = 0  # of the first file
        self.heard = time.monotonic()

    def wanted(self) -> dict[str, int]:
        found: dict[str, int] = {}
        size = 0
        for number, file in enumerate(self.todo[:MOST_WANTED]):
            found[file.path] = 0 if number else self.offset
            size += file.size - found[file.path]
            if size >= PART_BYTES:
                break
        return found

    def next(self) -> None:
        self.todo, self.offset = self.todo[1:], 0


class Fetching:
    def __init__(
        self,
        plan: LaunchPlan,
        messages: Messages,
        folder: Path,
        keeping: Keeping,
        give_up: Callable[[], bool],
    ) -> None:
        """folder: the folder of the run. give_up: returns whether the user wants to stop."""
        self.plan = plan
        self.wanted: PlannedFetch = plan.fetch or {"patterns": [], "most": 0, "folder": ""}
        self.entries = plan.by_node()
        self.messages = messages
        self.folder = folder / FOLDER
        self.keeping = keeping
        self.give_up = give_up
        self.fetched = Fetched(str(self.folder))
        self.rest: dict[str, Rest] = {}
        self.told = time.monotonic()

    def fetch(self, nodes: Collection[str]) -> Fetched:
        """Fetch the files that match the plan's patterns from these nodes. Report missing files by name."""
        wanted = choose(self.listings(nodes), self.wanted["most"], self.fetched)
        self.rest = {name: Rest(found) for name, found in wanted.items()}
        for name in self.rest:
            self.ask(name)
        while self.rest:
            if self.give_up():
                self.leave_all(list(self.rest), GIVEN_UP)
                break
            answer = self.messages.next(0.2)
            if answer is not None and answer.verb == "fetched" and answer.node in self.rest:
                self.take(answer)
            late = [name for name, rest in self.rest.items() if time.monotonic() > rest.heard + SILENCE]
            self.leave_all(late, "the node stopped responding")
            self.say_how_far()
        return self.fetched

    def listings(self, nodes: Collection[str]) -> dict[str, Listing]:
        for name in nodes:
            more = {"patterns": self.wanted["patterns"]}
            self.messages.ask(name, "fetchable", {**self.request(name), **more}, privileged=True, program=PROGRAM)
        answers = self.messages.gather("fetchable", nodes, LIST_TIMEOUT, lambda _: None, self.give_up)
        found: dict[str, Listing] = {}
        for name in nodes:
            answer = answers.get(name)
            if answer is None or answer.data is None:
                self.fetched.leave(name, "", answer.error if answer else "no response from the node")
            else:
                found[name] = listing_of(answer.data)
        return found

    def request(self, name: str) -> dict[str, Any]:
        entry = self.entries[name]
        return {
            "launch_id": self.plan.launch_id,
            "run_dir": entry.run_dir,
            "folder": self.wanted["folder"] or entry.work_dir,
        }

    def ask(self, name: str) -> None:
        wanted = [{"path": path, "offset": offset} for path, offset in self.rest[name].wanted().items()]
        request = {**self.request(name), "wanted": wanted, "limit": PART_BYTES}
        self.messages.ask(name, "fetched", request, privileged=True, program=PROGRAM)

    def take(self, answer: NodeReply) -> None:
        rest = self.rest[answer.node]
        rest.heard = time.monotonic()
        wanted = rest.wanted()
        parts = {part.path: part for part in parts_of(answer.data or {}, wanted)}
        if not parts:
            why = answer.error or str((answer.data or {}).get("why") or "invalid response")
            self.leave_all([answer.node], why)
            return
        # A missing part counts as an error of its file, so that the file is not requested forever.
        for path in wanted:
            if not self.took(answer.node, rest, parts.pop(path, Part(path, why="no data received"))) or not parts:
                break
        if rest.todo:
            self.ask(answer.node)
        else:
            del self.rest[answer.node]

    def took(self, node: str, rest: Rest, part: Part) -> bool:
        """Write a part of a file. Return whether the file is complete, so that the next file can be requested."""
        file, path = rest.todo[0], self.folder / node / part.path
        end = part.offset + len(part.data)
        why = part.why
        if not why and ((part.size, part.changed) != (file.size, file.changed) or end > file.size):
            why = "the file changed during the transfer"
        elif not why and not part.data and end < file.size:
            why = "no data received"
        why = why or self.keeping.surely(path, partial(write, path, part), WRITING)
        if why:
            self.fetched.leave(node, part.path, why)
            self.keeping.surely(path, partial(files.remove, str(path)))
        elif end < file.size:
            rest.offset = end
            return False
        else:
            self.fetched.came.setdefault(node, []).append((part.path, file.size))
        rest.next()
        return True

    def leave_all(self, nodes: list[str], why: str) -> None:
        for name in nodes:
            rest = self.rest.pop(name)
            for number, file in enumerate(rest.todo):
                self.fetched.leave(name, file.path, why)
                if not number and rest.offset:
                    path = self.folder / name / file.path
                    self.keeping.surely(path, partial(files.remove, str(path)))

    def say_how_far(self) -> None:
        if self.rest and time.monotonic() > self.told + SAID_EVERY:
            self.told = time.monotonic()
            left = sum(sum(file.size for file in rest.todo) - rest.offset for rest in self.rest.values())
            self.keeping.say(f"fetching results: {left / 1e6:.0f} MB left; press Ctrl-C to leave them on the nodes")


def write(path: Path, part: Part) -> None:
    """Append a part of a file. The first part replaces the file of an earlier fetch. Raises OSError."""
    make_folder(path.parent)
    if not part.offset:
        files.remove(str(path))
    rest = part.data
    while True:
        written = append(path, rest)
        rest = rest[written:]
        if not rest:
            return
