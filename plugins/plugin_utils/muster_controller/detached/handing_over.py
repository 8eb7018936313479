"""The controller's side of a detached launch with restarts: starts a watcher on the head node, and queries it.

Before the start the controller checks the launch's user, and whether this user can log in from the head node to every
participant and spare. Each problem is reported with the name of the node.
"""

from __future__ import annotations

import ast
import base64
import io
import time
import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.launch import manager, watched
from muster.launch.answers import reader
from muster.launch.watch import pace
from muster.verdict.commands import ping
from muster.verdict.reading import UnusableError
from muster_controller.launch.launch_messages import LaunchMessages
from muster_controller.launch.sending import STORE
from muster_controller.nodes.distribution import Distribution, DistributionNode
from muster_controller.nodes.program import NodeProgram
from muster_controller.playbook.node_error import NodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from muster.launch.manager import Whose
    from muster.launch.messages import Identity
    from muster.launch.options import LaunchOptions
    from muster.launch.plan import NodeSpec
    from muster.launch.planned import LaunchPlan
    from muster.launch.watched import Word
    from muster.verdict.finding import Finding
    from muster_controller.launch.project import Project
    from muster_controller.nodes.messages import NodeReply
    from muster_controller.playbook.node_error import Way


HERE = Path(__file__).parents[1]
ROOMS = HERE.parents[1] / "module_utils"
MAIN = "detached.watcher"
ENTRY = f"from {HERE.name}.{MAIN} import main\n\nmain()\n"
# Fixed time stamps, so that the same program gives the same bytes.
BEGINNING = (1980, 1, 1, 0, 0, 0)


# ---------------------------------------------------------------- bundle

# The watcher as one zip file: the parts of this package without Ansible, and the rooms that they import.


@cache
def watcher_program() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, text in (*sources(), ("__main__.py", ENTRY)):
            bundle.writestr(zipfile.ZipInfo(name, BEGINNING), text, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def sources() -> Iterator[tuple[str, str]]:
    for room in ("muster", "muster_node"):
        for path in sorted((ROOMS / room).rglob("*.py")):
            yield str(path.relative_to(ROOMS)), path.read_text(encoding="utf-8")
    files = sorted(needed())
    packages = ["", *sorted({f"{name.partition('.')[0]}." for name in files})]
    for name in (*(f"{package}__init__" for package in packages), *files):
        yield f"{HERE.name}/{name.replace('.', '/')}.py", text_of(name)


def text_of(name: str) -> str:
    return HERE.joinpath(*name.split(".")).with_suffix(".py").read_text(encoding="utf-8")


def needed() -> set[str]:
    """Return the modules of this package, as ROOM.FILE, that the watcher imports at run time."""
    found: set[str] = set()
    wanted = [MAIN]
    while wanted:
        name = wanted.pop()
        if name not in found:
            found.add(name)
            wanted += imported(text_of(name), name.partition(".")[0])
    return found


def imported(text: str, room: str) -> Iterator[str]:
    for node in ast.parse(text).body:
        if not isinstance(node, ast.ImportFrom):
            continue
        source = f"{HERE.name}.{room}.{node.module or ''}".rstrip(".") if node.level else str(node.module)
        package, _, name = source.partition(".")
        if package == HERE.name:
            yield from [name] if "." in name else [f"{name}.{each.name}" for each in node.names]


LAUNCH, WATCHER = NodeProgram("launch"), NodeProgram("watcher")
IDENTITY_TIMEOUT = 30.0
REACH_TIMEOUT = 40.0  # plus the following time per node; six logins run at once
REACH_EACH = 4.0
BEGIN_TIMEOUT = 60.0
WORD_TIMEOUT = 30.0
PAUSE = 1.0
MOST_SILENT = 60.0  # seconds without a response from the head node until an error is raised
SLACK = 60  # additional seconds for the watcher's last report
MEMORY = "2G"


class HandingOver:
    """The steps before the watcher starts. ways: connections to all participants and spares. head: the first of these
    nodes."""

    def __init__(self, ways: Mapping[str, Way], say: Callable[[str], None], give_up: Callable[[], bool]) -> None:
        self.head = next(iter(ways))
        self.names = list(ways)
        self.say = say
        self.give_up = give_up
        self.messages = LaunchMessages(ways, LAUNCH)
        self.messages.open()

    def whose(self, requested: str) -> tuple[Whose, list[Finding]]:
        """Return the user of the launch, and findings that block the launch."""
        for name in self.names:
            self.messages.ask(name, "identity", {})
        answers = self.gather("identity", self.names, IDENTITY_TIMEOUT)
        known: dict[str, Identity] = {}
        found = []
        read = reader({name: [0] for name in self.names})
        for name in self.names:
            answer = answers.get(name)
            why = answer.error if answer else f"no response within {IDENTITY_TIMEOUT:.0f} s"
            try:
                known[name] = read(name, "identity", answer and answer.data)[0]
            except UnusableError as problem:
                text = f"the login user could not be determined: {why or problem}"
                found.append(watched.WATCHER.fail(name, text, fix="Check the connection with", command=ping(name)))
        whose, against = manager.whose(requested, known)
        self.messages.own = whose.own
        return whose, [*found, *against] or watched.unwatchable(self.head, whose)

    def unreached(self, user: str, addresses: Mapping[str, str]) -> list[Finding]:
        """Return findings about failed logins from the head node. addresses: the addresses of the other nodes, by
        name."""
        self.messages.ask(self.head, "reach", {"nodes": dict(addresses)}, program=WATCHER)
        answer = self.gather("reach", [self.head], REACH_TIMEOUT + REACH_EACH * len(addresses)).get(self.head)
        tried = answer.data.get("tried") if answer and isinstance(answer.data, dict) else None
        if not isinstance(tried, dict):
            why = answer.error or "invalid response" if answer else "no response"
            return [
                watched.WATCHER.fail(
                    self.head, f"the logins of {user} on other nodes could not be tested: {why}", fix="Check the node"
                )
            ]
        return watched.unreached(self.head, user, {k: v for k, v in tried.items() if isinstance(v, dict)}, addresses)

    def bring(self, project: Project, plan: LaunchPlan, nodes: list[NodeSpec]) -> dict[str, str]:
        """Copy the project to all participants and spares before the start. Return, by node, why copying failed."""
        store = str(Path(plan.head.run_dir).parent / STORE)
        places = {node.name: DistributionNode(node.address, store) for node in nodes}
        port = plan.master_port
        return Distribution(places, port, self.messages, self.say, self.give_up, privileged=False).bring(project)

    def begin(self, launch_id: str, spec: dict[str, Any]) -> str:
        """Create the systemd unit of the watcher. Return the error, or an empty string."""
        options = spec["request"]["options"]
        stopping = options["stop_timeout"] + options["failure_timeout"] + SLACK
        request = {
            "launch_id": launch_id,
            "program": base64.b64encode(watcher_program()).decode(),
            "spec": spec,
            "properties": {
                "KillMode": "control-group",
                "TimeoutStopSec": f"{stopping}s",
                "RuntimeMaxSec": f"{options['time_limit'] + stopping}s",
                "LimitCORE": "0",
                "MemoryMax": MEMORY,
                "NoNewPrivileges": "yes",
                "UMask": "0077",
            },
        }
        self.messages.ask(self.head, "begin", request, program=WATCHER)
        answer = self.gather("begin", [self.head], BEGIN_TIMEOUT).get(self.head)
        if answer is None or not isinstance(answer.data, dict):
            return answer.error if answer and answer.error else "no response"
        return str(answer.data.get("error", ""))

    def gather(self, verb: str, nodes: list[str], timeout: float) -> dict[str, NodeReply]:
        return self.messages.gather(verb, nodes, timeout, lambda _: None, self.give_up)

    def close(self) -> None:
        self.messages.close()


class Watched:
    """A launch with a watcher. quote: shows text that the controller did not write."""

    def __init__(self, launch_id: str, way: Way, quote: Callable[[str], None], watcher: watched.WatcherPlace) -> None:
        self.launch_id = launch_id
        self.user = watcher.user
        self.head = way.name
        self.quote = quote
        self.watcher = watcher
        self.heard = 0  # sentences
        self.messages = LaunchMessages({way.name: way}, WATCHER)
        self.messages.own = True
        self.messages.open()

    def ask(self, verb: str) -> dict[str, Any]:
        """Send a request to the watcher as the launch's user. Raises NodeError."""
        if not self.messages.user:
            self.settle()
        return self.asked(verb, {"launch_id": self.launch_id})

    def settle(self) -> None:
        """Let an administrator send requests as the launch's user. Only this user's systemd manager can find the
        watcher. Raises NodeError."""
        login = self.asked("identity", {}, program=LAUNCH)
        name = login.get("name")
        if name != self.user and login.get("launch_user"):
            raise NodeError(f"user launch of {self.user}, but the login user is {name}", reachable=True)
        if name != self.user:
            self.messages.by_root = frozenset({self.head})
        self.messages.user = self.user

    def asked(self, verb: str, payload: dict[str, Any], **how: Any) -> dict[str, Any]:
        self.messages.ask(self.head, verb, payload, **how)
        answer = self.messages.gather(verb, [self.head], WORD_TIMEOUT, lambda _: None).get(self.head)
        if answer is None or not isinstance(answer.data, dict):
            raise NodeError(answer.error if answer else f"no response within {WORD_TIMEOUT:.0f} s", reachable=False)
        return answer.data

    def word(self) -> Word:
        """Return the current report of the watcher, and show new sentences in the report. Raises NodeError."""
        try:
            found = self.watcher.read(self.ask("word"))
        except UnusableError as problem:
            raise NodeError(f"invalid report of the watcher: {problem}", reachable=True) from None
        for sentence in found.said[max(0, self.heard - found.first) :]:
            self.quote(sentence)
        self.heard = max(self.heard, found.first + len(found.said))
        return found

    def follow(self, enough: Callable[[Word], bool], seconds: float = float("inf")) -> Word | None:
        """Follow the watcher until `enough` returns true or the watcher has ended. Return None after a timeout.

        Raises NodeError if the head node stops responding.
        """
        until, heard = time.monotonic() + seconds, time.monotonic()
        while time.monotonic() < until:
            try:
                found = self.word()
            except NodeError:
                if time.monotonic() > heard + MOST_SILENT:
                    raise
            else:
                heard = time.monotonic()
                if found.over or enough(found):
                    return found
            time.sleep(PAUSE)
        return None

    def end(self) -> str:
        """Request the watcher to stop the launch and to exit. Return the error, or an empty string. Raises
        NodeError."""
        return str(self.ask("end").get("error", ""))

    def close(self) -> None:
        self.messages.close()


def leases_over(nodes: int, options: LaunchOptions) -> float:
    """Return the time in seconds after which the expired leases of a lost watcher have certainly ended the launch."""
    return 2 * pace(nodes, options.silence_timeout).lease + options.failure_timeout + 5.0
