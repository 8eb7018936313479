"""Content for all nodes of a launch: sent to one node, and from there to the others over the training network.

Each node says first what it lacks, so that only differences travel. Who gives and who takes begin at the same time, for
one transfer, with a token of their own that goes over ssh alone. What comes is compared with its sha256 on the node
that takes it, and again each time that it is used.
"""

from __future__ import annotations

import base64
import secrets
import time
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from muster.distribution import answers, rounds
from muster.verdict.words import few, gigabytes, plural

from .program import Program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from muster_node.distribution.manifest import File

    from .messages import Answer, Messages

PROGRAM = Program("distribution")
BODY = 4_000_000  # bytes of content in one message to the node that the controller sends to
LOOK_TIMEOUT = 40.0
SEND_TIMEOUT = 120.0
TRANSFER = 20.0  # seconds that a transfer may take, and
SLOWEST = 2_000_000  # bytes a second
LONGEST = 600.0
TRIES = 2  # nodes that one node asks
DYNAMIC = (32768, 40959)  # ports that nodes reach on each other, whether the firewall is loose or tight (docs/ports.md)


class Content(Protocol):
    """What is distributed; see Project."""

    @property
    def manifest(self) -> bytes: ...

    @property
    def files(self) -> Sequence[File]: ...

    @property
    def digest(self) -> str: ...

    def read(self, file: File, begin: int, most: int) -> bytes: ...


class Place(NamedTuple):
    """address: on the training network. store: the folder there."""

    address: str
    store: str


class Distribution:
    """privileged: whether the stores are root's. port: where a node listens whose port is free."""

    def __init__(
        self,
        places: Mapping[str, Place],
        port: int,
        messages: Messages,
        say: Callable[[str], None],
        give_up: Callable[[], bool],
        *,
        privileged: bool,
    ) -> None:
        self.places = places
        self.port = port
        self.messages = messages
        self.say = say
        self.give_up = give_up
        self.privileged = privileged
        self.failures: dict[str, str] = {}
        self.lacks: dict[str, set[str]] = {}
        self.port_free: set[str] = set()

    def bring(self, content: Content) -> dict[str, str]:
        """Have all of it on every node; return why not, by node."""
        self.look(content)
        if self.failures or not any(self.lacks.values()) or self.give_up():
            return self.failures
        if all(self.lacks.values()):
            self.send(content, rounds.seed({name: self.bytes_of(content, lacks) for name, lacks in self.lacks.items()}))
        tried: dict[str, set[str]] = {name: set() for name in self.places}
        while not self.give_up():
            having = [name for name, lacks in self.lacks.items() if not lacks]
            lacking = [name for name, lacks in self.lacks.items() if lacks and len(tried[name]) < TRIES]
            serving = rounds.next_round(having, lacking, tried)
            if not serving:
                break
            self.pass_on(content, serving, tried)
        return {name: why for name, why in self.failures.items() if self.lacks.get(name, True)}

    # ------------------------------------------------------------ steps

    def look(self, content: Content) -> None:
        """Learn what each node lacks."""
        known = {file.sha256 for file in content.files}
        request = {"manifest": base64.b64encode(content.manifest).decode(), "port": self.port}
        for name, answer in self.ask("stored", dict.fromkeys(self.places, request), LOOK_TIMEOUT).items():
            found = answers.stored(answer.data, known) if answer and answer.data is not None else None
            if found is None or found["error"]:
                self.failures[name] = found["error"] if found else why(answer, LOOK_TIMEOUT)
                continue
            self.lacks[name] = set(found["missing"])
            # What comes, the pack to give it on, and the launch's own copy.
            needed = 3 * self.bytes_of(content, self.lacks[name]) + sum(file.size for file in content.files)
            if needed > found["room"]:
                store = self.places[name].store
                self.failures[name] = f"{store} has no room for {gigabytes(needed)}, which the project needs there"
            if found["port_free"]:
                self.port_free.add(name)

    def send(self, content: Content, name: str) -> None:
        """Send one node what it lacks."""
        began, lacks = time.monotonic(), self.lacks[name]
        transfer = secrets.token_hex(32)
        for pieces, body in bodies(content, lacks):
            request = {"digest": content.digest, "name": transfer, "pieces": pieces}
            request["body"] = base64.b64encode(zlib.compress(body, 1)).decode()
            answer = self.ask("put", {name: request}, SEND_TIMEOUT)[name]
            error = answers.failure(answer.data) if answer and answer.data is not None else why(answer, SEND_TIMEOUT)
            if error:
                self.failures[name] = error
                return
        size = gigabytes(self.bytes_of(content, lacks))
        self.say(f"project: {plural(len(lacks), 'file')}, {size}, sent to {name} in {time.monotonic() - began:.1f} s")
        self.lacks[name] = set()

    def pass_on(self, content: Content, serving: Mapping[str, Sequence[str]], tried: Mapping[str, set[str]]) -> None:
        """One round: every node that has it gives it to some that lack it."""
        began = time.monotonic()
        serves: dict[str, dict[str, Any]] = {}
        fetches: dict[str, dict[str, Any]] = {}
        source_of: dict[str, str] = {}
        for source, names in serving.items():
            wanted = set().union(*(self.lacks[name] for name in names))
            seconds = min(LONGEST, TRANSFER + len(names) * self.bytes_of(content, wanted) / SLOWEST)
            token = secrets.token_hex(32)
            port = self.port if source in self.port_free else secrets.choice(range(*DYNAMIC))
            common = {"digest": content.digest, "port": port, "token": token, "seconds": seconds}
            peers = [self.places[name].address for name in names]
            address = self.places[source].address
            serves[source] = {**common, "wanted": sorted(wanted), "address": address, "peers": peers}
            for name in names:
                fetches[name] = {**common, "source": address, "address": self.places[name].address}
                source_of[name] = source
        limit = max(request["seconds"] for request in fetches.values()) + LOOK_TIMEOUT
        gave, got = self.ask_both(serves, fetches, limit)
        for name, source in source_of.items():
            tried[name].add(source)
            answer, given = got.get(name), gave.get(source)
            error = answers.fetched(answer.data) if answer and answer.data is not None else why(answer, limit)
            if not error:
                self.lacks[name] = set()
                continue
            there = answers.failure(given.data) if given and given.data is not None else why(given, limit)
            place = f"{self.places[source].address} port {fetches[name]['port']}"
            self.failures[name] = f"it got nothing from {source} ({place}): {there or error}"
        done = [name for name in source_of if not self.lacks[name]]
        if done:
            self.say(f"project: from {few(list(serving))} to {few(done)} in {time.monotonic() - began:.1f} s")

    # ------------------------------------------------------------ messages

    def ask(self, verb: str, requests: Mapping[str, dict[str, Any]], timeout: float) -> dict[str, Answer | None]:
        self.put_out(verb, requests)
        found = self.messages.gather(verb, requests, timeout, too_late, self.give_up)
        return {name: found.get(name) for name in requests}

    def ask_both(
        self, serves: Mapping[str, dict[str, Any]], fetches: Mapping[str, dict[str, Any]], timeout: float
    ) -> tuple[dict[str, Answer], dict[str, Answer]]:
        """Both at once: who serves answers when it is done."""
        gave: dict[str, Answer] = {}
        self.put_out("serve", serves)
        self.put_out("fetch", fetches)

        def other(answer: Answer) -> None:
            if answer.verb == "serve":
                gave[answer.node] = answer

        until = time.monotonic() + timeout
        got = self.messages.gather("fetch", fetches, timeout, other, self.give_up)
        rest = [name for name in serves if name not in gave]
        left = max(0.0, until - time.monotonic())
        gave.update(self.messages.gather("serve", rest, left, too_late, self.give_up))
        return gave, got

    def put_out(self, verb: str, requests: Mapping[str, dict[str, Any]]) -> None:
        for name, request in requests.items():
            payload = {"store": self.places[name].store, **request}
            self.messages.ask(name, verb, payload, privileged=self.privileged, program=PROGRAM)

    def bytes_of(self, content: Content, digests: set[str]) -> int:
        return sum({file.sha256: file.size for file in content.files if file.sha256 in digests}.values())


def bodies(content: Content, wanted: set[str]) -> Iterator[tuple[list[list[Any]], bytes]]:
    """Yield messages with all that is wanted: pieces [sha256, begin, size], and their content in that order."""
    pieces: list[list[Any]] = []
    body = b""
    for file in {file.sha256: file for file in content.files if file.sha256 in wanted}.values():
        begin = 0
        while True:
            size = min(file.size - begin, BODY - len(body))
            part = content.read(file, begin, size)
            pieces.append([file.sha256, begin, size])
            body += part.ljust(size, b"\0")  # one that has become shorter is found out there
            begin += size
            if len(body) >= BODY:
                yield pieces, body
                pieces, body = [], b""
            if begin >= file.size:
                break
    if pieces:
        yield pieces, body


def why(answer: Answer | None, seconds: float) -> str:
    return (answer.error or answers.SHAPELESS) if answer else f"no answer within {seconds:.0f} s"


def too_late(_answer: Answer) -> None:
    """What comes behind its time is of no use any more."""
