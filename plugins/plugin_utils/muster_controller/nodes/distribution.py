"""Content for many nodes: from those that have it to the others over the training network, along lines of nodes.

Each node says first what it lacks, so that only differences travel. All nodes of a line begin at the same time, with
a token that goes over ssh alone. What comes is compared with its sha256 on the node that takes it, and again each time
that it is used. What nobody has yet, of a launch's project, the controller sends to one node.
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
BODY = 4_000_000  # bytes of content in one message to the node that the controller sends to
LOOK_TIMEOUT = 40.0
READS = 50_000_000  # bytes a second that a node reads at least
SEND_TIMEOUT = 120.0
TRANSFER = 20.0  # seconds that it may take to bring it, and
SLOWEST = 2_000_000  # bytes a second
LONGEST = 7200.0
CALLS_FOR = 20.0  # seconds within which all nodes of a line have begun
TRIES = 3  # lines that are tried, each time with what the one before has left
DYNAMIC = (32768, 40959)  # ports that nodes reach on each other, whether the firewall is loose or tight (docs/ports.md)


class Content(Protocol):
    """What is distributed; see Project, and Wheels."""

    @property
    def files(self) -> Sequence[ManifestFile]: ...

    def read(self, file: ManifestFile, begin: int, most: int) -> bytes: ...


def digest_of(content: Content) -> str:
    """Of its manifest: what it is known by on every node."""
    return manifest.digest_of(manifest.render(content.files))


class DistributionNode(NamedTuple):
    """address: on the training network. store: the folder there; plain: with files under their own names."""

    address: str
    store: str
    plain: bool = False

    def of(self, content: Content) -> dict[str, Any]:
        if self.plain:
            return {"folder": self.store, "manifest": base64.b64encode(manifest.render(content.files)).decode()}
        return {"store": self.store, "digest": digest_of(content)}


class Distribution:
    """what: is brought, for people. privileged: whether the stores are root's. port: where a node listens whose port
    is free. copied: whether a launch makes its own copy. body: bytes of content in one message. lacks: of each node
    that was looked at, the sha256 of what it lacks. came: from which nodes, the first."""

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
        """Have all of it on every node, also what only the controller has; return why not, by node."""
        self.look(content)
        if self.failures or not any(self.lacks.values()) or self.give_up():
            return self.failures
        if all(self.lacks.values()):
            self.send(content, seed({name: self.bytes_of(content, lacks) for name, lacks in self.lacks.items()}))
        return self.spread(content)

    def spread(self, content: Content) -> dict[str, str]:
        """Have what some nodes have on all that were looked at; return why not, by node."""
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
        """Learn what each node lacks."""
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
            # What comes, its place in the store, and the launch's own copy.
            own = sum(file.size for file in content.files) if self.copied else 0
            needed = (2 + self.copied) * self.bytes_of(content, self.lacks[name]) + own
            if needed > found["room"]:
                store = self.places[name].store
                self.failures[name] = f"{store} has no room for {gigabytes(needed)}, which the {self.what} needs there"
            if found["port_free"]:
                self.port_free.add(name)

    def send(self, content: Content, name: str) -> None:
        """Send one node what it lacks."""
        began, lacks = time.monotonic(), self.lacks[name]
        transfer = secrets.token_hex(32)
        # With its last part a file is read and written once more.
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
        """Every node takes what it lacks from those that it asks, and gives it on meanwhile."""
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
            self.say(f"{self.what}: {gigabytes(size)}, from {few(sources)} along {few(list(asks))}")
        limit = seconds + LOOK_TIMEOUT
        got = self.ask("share", requests, limit)
        name_of = {address: name for name, (address, _) in ways.items()}
        self.settle(asks, got, name_of, port, limit)
        done = [name for name in asks if not self.lacks.get(name, True)]
        if done:
            self.say(f"{self.what}: from {few(sources)} to {few(done)} in {time.monotonic() - began:.1f} s")

    def settle(
        self,
        asks: Mapping[str, Sequence[str]],
        got: Mapping[str, NodeReply | None],
        name_of: Mapping[str, str],
        port: Mapping[str, int],
        limit: float,
    ) -> None:
        """Learn what came of it. Whoever did not answer takes no further part."""
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
            amount = "only a part" if found and found["came"] else "nothing"
            error = failed or found["error"] if found else why(answer, limit)
            place = f"{self.places[source].address} port {port[source]}"
            self.failures[name] = f"it got {amount} from {source} ({place}): {error}" if found else error
        for name, answer in got.items():
            if answer is None or answer.data is None:
                self.failures.setdefault(name, why(answer, limit))
                del self.lacks[name]

    def offered(self, content: Content, sources: Sequence[str], wanted: list[str], seconds: float) -> list[str] | None:
        """Return the sha256 of each piece; None where one has not what it is to give, which is no source then."""
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
    """Yield messages with all that is wanted: pieces [sha256, begin, size], and their content in that order."""
    pieces: list[list[Any]] = []
    body = b""
    for file in {file.sha256: file for file in content.files if file.sha256 in wanted}.values():
        begin = 0
        while True:
            size = min(file.size - begin, most - len(body))
            part = content.read(file, begin, size)
            pieces.append([file.sha256, begin, size])
            body += part.ljust(size, b"\0")  # one that has become shorter is found out there
            begin += size
            if len(body) >= most:
                yield pieces, body
                pieces, body = [], b""
            if begin >= file.size:
                break
    if pieces:
        yield pieces, body


def why(answer: NodeReply | None, seconds: float) -> str:
    return (answer.error or answers.SHAPELESS) if answer else f"no answer within {seconds:.0f} s"


def too_late(_answer: NodeReply) -> None:
    """What comes behind its time is of no use any more."""
