"""Distributes content over the training network, in chains, from the nodes that have the content to all others.

Each node first reports its missing files, so that only these files are transferred. All nodes of a chain start at the
same time, and authenticate with a token that is sent only over SSH. The receiver verifies the sha256 of the content
after the transfer and before each use. If no node has the files of a launch's project, the controller sends them to one
node.
"""

from __future__ import annotations

import base64
import secrets
import time
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from muster.distribution import answers
from muster.distribution.lines import lines, seed
from muster.verdict.words import few, gigabytes, plural
from muster_node.distribution import manifest

from .program import NodeProgram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from muster_node.distribution.manifest import ManifestFile

    from .messages import Messages, NodeReply

PROGRAM = NodeProgram("distribution")
BODY = 4_000_000  # bytes of content in one message from the controller to a node
LOOK_TIMEOUT = 40.0
READS = 50_000_000  # assumed lowest read rate of a node, bytes/s
SEND_TIMEOUT = 120.0
TRANSFER = 20.0  # timeout of a transfer in seconds, plus
SLOWEST = 2_000_000  # the time at this rate, bytes/s
LONGEST = 7200.0
CALLS_FOR = 20.0  # seconds in which all nodes of a chain must have started
TRIES = 3  # attempts, each with the files that are still missing
DYNAMIC = (32768, 40959)  # ports that are open between nodes with a loose or tight firewall (docs/ports.md)


class Content(Protocol):
    """Content to distribute; see Project and Wheels."""

    @property
    def files(self) -> Sequence[ManifestFile]: ...

    def read(self, file: ManifestFile, begin: int, most: int) -> bytes: ...


def digest_of(content: Content) -> str:
    """Return the digest of the manifest, which identifies the content on every node."""
    return manifest.digest_of(manifest.render(content.files))


class DistributionNode(NamedTuple):
    """address: the node's address on the training network. store: the folder on the node. plain: whether files keep
    their names in this folder."""

    address: str
    store: str
    plain: bool = False

    def of(self, content: Content) -> dict[str, Any]:
        if self.plain:
            return {"folder": self.store, "manifest": base64.b64encode(manifest.render(content.files)).decode()}
        return {"store": self.store, "digest": digest_of(content)}


class Distribution:
    """what: the name of the content in messages. privileged: whether root owns the stores. port: the preferred port to
    listen on. copied: whether a launch makes its own copy. body: the number of content bytes in one message. lacks: the
    sha256 of the missing files of each node. came: for each node, the nodes that sent content to it."""

    def __init__(
        self,
        places: Mapping[str, DistributionNode],
        port: int,
        messages: Messages,
        say: Callable[[str], None],
        give_up: Callable[[], bool],
        *,
        privileged: bool,
        what: str = "project",
        copied: bool = True,
        body: int = BODY,
    ) -> None:
        self.places = places
        self.port = port
        self.messages = messages
        self.say = say
        self.give_up = give_up
        self.privileged = privileged
        self.what = what
        self.copied = copied
        self.body = body
        self.failures: dict[str, str] = {}
        self.lacks: dict[str, set[str]] = {}
        self.port_free: set[str] = set()
        self.came: dict[str, list[str]] = {}

    def bring(self, content: Content) -> dict[str, str]:
        """Copy the content to every node. If no node has a file, send the file from the controller. Return, by node,
        why copying failed."""
        self.look(content)
        if self.failures or not any(self.lacks.values()) or self.give_up():
            return self.failures
        if all(self.lacks.values()):
            self.send(content, seed({name: self.bytes_of(content, lacks) for name, lacks in self.lacks.items()}))
        return self.spread(content)

    def spread(self, content: Content) -> dict[str, str]:
        """Copy the files that some nodes have to all inspected nodes. Return, by node, why copying failed."""
        for _ in range(TRIES):
            having = [name for name, lacks in self.lacks.items() if not lacks]
            lacking = [name for name, lacks in self.lacks.items() if lacks]
            asks = lines(having, lacking)
            if not asks or self.give_up():
                break
            self.pass_on(content, asks)
        return {name: why for name, why in self.failures.items() if self.lacks.get(name, True)}

    # ------------------------------------------------------------ steps

    def look(self, content: Content) -> None:
        """Query the missing files of each node."""
        known = {file.sha256: file.size for file in content.files}
        limit = LOOK_TIMEOUT + sum(known.values()) / READS
        request = {"manifest": base64.b64encode(manifest.render(content.files)).decode(), "port": self.port}
        asked = {name: {"store": place.store, **request} for name, place in self.places.items()}
        for name, answer in self.ask("stored", asked, limit).items():
            found = answers.stored(answer.data, {*known}) if answer and answer.data is not None else None
            if found is None or found["error"]:
                self.failures[name] = found["error"] if found else why(answer, limit)
                continue
            self.lacks[name] = set(found["missing"])
            # The received files, their copy in the store, and the launch's own copy.
            own = sum(file.size for file in content.files) if self.copied else 0
            needed = (2 + self.copied) * self.bytes_of(content, self.lacks[name]) + own
            if needed > found["room"]:
                store = self.places[name].store
                self.failures[name] = (
                    f"{store} does not have the {gigabytes(needed)} of free space that the {self.what} needs"
                )
            if found["port_free"]:
                self.port_free.add(name)

    def send(self, content: Content, name: str) -> None:
        """Send one node its missing files from the controller."""
        began, lacks = time.monotonic(), self.lacks[name]
        transfer = secrets.token_hex(32)
        # After the last part a file is read and written once more.
        limit = SEND_TIMEOUT + 2 * max((file.size for file in content.files), default=0) / READS
        for pieces, body in bodies(content, lacks, self.body):
            request = {**self.places[name].of(content), "name": transfer, "pieces": pieces}
            request["body"] = base64.b64encode(zlib.compress(body, 1)).decode()
            answer = self.ask("put", {name: request}, limit)[name]
            error = answers.failure(answer.data) if answer and answer.data is not None else why(answer, limit)
            if error:
                self.failures[name] = error
                return
        size = gigabytes(self.bytes_of(content, lacks))
        took = time.monotonic() - began
        self.say(f"{self.what}: {plural(len(lacks), 'file')}, {size}, sent to {name} in {took:.1f} s")
        self.lacks[name] = set()

    def pass_on(self, content: Content, asks: Mapping[str, Sequence[str]]) -> None:
        """Let every node receive missing files from its sources and forward them at the same time."""
        began = time.monotonic()
        sources = list(dict.fromkeys(name for givers in asks.values() for name in givers if name not in asks))
        wanted = sorted(set().union(*(self.lacks[name] for name in asks)))
        size = self.bytes_of(content, set(wanted))
        seconds = min(LONGEST, TRANSFER + size / SLOWEST)
        pieces = self.offered(content, sources, wanted, seconds)
        if pieces is None:
            return
        names, token = [*sources, *asks], secrets.token_hex(32)
        port = {name: self.port if name in self.port_free else secrets.choice(range(*DYNAMIC)) for name in names}
        ways = {name: (self.places[name].address, port[name]) for name in names}
        followed = {givers[0] for givers in asks.values()}
        common = {"wanted": wanted, "pieces": pieces, "token": token, "seconds": seconds, "calls_for": CALLS_FOR}
        common["peers"] = [self.places[name].address for name in asks]
        requests = {
            name: {
                **self.places[name].of(content),
                **common,
                "address": ways[name][0],
                "port": port[name],
                "followed": name in followed,
                "givers": [ways[giver] for giver in asks.get(name, ())],
            }
            for name in names
        }
        if size > BODY:
            self.say(f"{self.what}: {gigabytes(size)}, copying from {few(sources)} to {few(list(asks))}")
        limit = seconds + LOOK_TIMEOUT
        got = self.ask("share", requests, limit)
        name_of = {address: name for name, (address, _) in ways.items()}
        self.settle(asks, got, name_of, port, limit)
        done = [name for name in asks if not self.lacks.get(name, True)]
        if done:
            self.say(f"{self.what}: copied from {few(sources)} to {few(done)} in {time.monotonic() - began:.1f} s")

    def settle(
        self,
        asks: Mapping[str, Sequence[str]],
        got: Mapping[str, NodeReply | None],
        name_of: Mapping[str, str],
        port: Mapping[str, int],
        limit: float,
    ) -> None:
        """Evaluate the results. Nodes that did not respond receive no files."""
        for name, givers in asks.items():
            answer = got[name]
            found = answers.shared(answer.data, name_of) if answer and answer.data is not None else None
            self.came[name] = list(dict.fromkeys([*self.came.get(name, ()), *(found["came"] if found else ())]))
            if found and not found["error"]:
                self.lacks[name] = set()
                continue
            source = givers[0]
            there = got[source]
            failed = answers.failure(there.data) if there and there.data is not None else why(there, limit)
            amount = "only some of the content" if found and found["came"] else "no content"
            error = failed or found["error"] if found else why(answer, limit)
            place = f"{self.places[source].address} port {port[source]}"
            self.failures[name] = f"received {amount} from {source} ({place}): {error}" if found else error
        for name, answer in got.items():
            if answer is None or answer.data is None:
                self.failures.setdefault(name, why(answer, limit))
                del self.lacks[name]

    def offered(self, content: Content, sources: Sequence[str], wanted: list[str], seconds: float) -> list[str] | None:
        """Return the sha256 of each piece. If a source lacks content, remove the node from the sources and return
        None."""
        found: list[list[str]] = []
        requests = {name: {**self.places[name].of(content), "wanted": wanted} for name in sources}
        for name, answer in self.ask("offer", requests, seconds + LOOK_TIMEOUT).items():
            one = answers.offered(answer.data) if answer and answer.data is not None else why(answer, seconds)
            if isinstance(one, str) or one not in (found or [one]):
                self.failures[name] = one if isinstance(one, str) else answers.SHAPELESS
                del self.lacks[name]
            else:
                found.append(one)
        return found[0] if len(found) == len(sources) else None

    # ------------------------------------------------------------ messages

    def ask(self, verb: str, requests: Mapping[str, dict[str, Any]], timeout: float) -> dict[str, NodeReply | None]:
        for name, request in requests.items():
            self.messages.ask(name, verb, request, privileged=self.privileged, program=PROGRAM)
        found = self.messages.gather(verb, requests, timeout, too_late, self.give_up)
        return {name: found.get(name) for name in requests}

    def bytes_of(self, content: Content, digests: set[str]) -> int:
        return sum({file.sha256: file.size for file in content.files if file.sha256 in digests}.values())


def bodies(content: Content, wanted: set[str], most: int = BODY) -> Iterator[tuple[list[list[Any]], bytes]]:
    """Yield messages with the requested files: the list of pieces [sha256, begin, size], and the content of the pieces
    in the same order."""
    pieces: list[list[Any]] = []
    body = b""
    for file in {file.sha256: file for file in content.files if file.sha256 in wanted}.values():
        begin = 0
        while True:
            size = min(file.size - begin, most - len(body))
            part = content.read(file, begin, size)
            pieces.append([file.sha256, begin, size])
            body += part.ljust(size, b"\0")  # the node detects a file that became shorter
            begin += size
            if len(body) >= most:
                yield pieces, body
                pieces, body = [], b""
            if begin >= file.size:
                break
    if pieces:
        yield pieces, body


def why(answer: NodeReply | None, seconds: float) -> str:
    return (answer.error or answers.SHAPELESS) if answer else f"no response within {seconds:.0f} s"


def too_late(_answer: NodeReply) -> None:
    """Ignore responses that arrive after the timeout."""
