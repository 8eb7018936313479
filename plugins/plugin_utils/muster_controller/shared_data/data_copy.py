"""Copies a data folder to all nodes: inspects the nodes, distributes each part between nodes, and moves it into
place."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from muster.distribution import answers
from muster.distribution.lines import seed
from muster.shared_data import copying
from muster.shared_data.copying import Lack, parts
from muster.verdict.words import gigabytes, plural
from muster_controller.nodes.distribution import READS, Distribution, DistributionNode, digest_of, why
from muster_controller.nodes.program import NodeProgram
from muster_node.shared_data.listing import STORE
from muster_node.tools.transfer import encode

from . import data_source
from .data_source import DataListing, DataPart, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from muster.shared_data.copying import CopyRequest
    from muster_controller.nodes.messages import Messages

Json = dict[str, Any]

PROGRAM = NodeProgram("data_copy")
KEPT = "/var/lib/muster/data"  # on nodes: caches of digests, and the store of a source-only node
BODY = 16_000_000  # bytes in one message from the controller; each message has 0.3 s of overhead
TIMEOUT = 60.0
EACH = 0.02  # seconds more for each file


@dataclass
class DataCopy:
    """addresses: the addresses of the nodes on the training network. port: the port for the transfer. failures:
    sentences, by node."""

    asked: CopyRequest
    addresses: Mapping[str, str]
    port: int
    messages: Messages
    say: Callable[[str], None]
    failures: dict[str, list[str]] = field(default_factory=dict)
    lacks: dict[str, Lack] = field(default_factory=dict)
    came: dict[str, dict[str, None]] = field(default_factory=dict)

    @property
    def target(self) -> str:
        return self.asked.target

    # ------------------------------------------------------------ inspecting

    def listed(self) -> DataListing:
        """Return the listing of the source node. Raises SourceError."""
        name, request = self.asked.node, {"folder": self.asked.source, "kept": KEPT}
        try:
            size = data_source.measured(self.asked.source, self._said("measure", request, TIMEOUT * 5))
            return data_source.from_node(self._said("list", request, TIMEOUT * 5 + size / READS).get("listed"))
        except SourceError as problem:
            raise SourceError([f"{name}: {each}" for each in problem.problems]) from None

    def _said(self, verb: str, request: Json, limit: float) -> Json:
        said = self._ask(verb, {self.asked.node: request}, limit)[self.asked.node]
        if isinstance(said, str):
            raise SourceError([said])
        return said

    def look(self, listed: DataListing, *, again: bool, remember: bool) -> None:
        """Query which files each node lacks. Exclude nodes that do not respond."""
        self.lacks = {name: Lack() for name in self.addresses if not self.asked.gives_only(name)}
        sizes, links = listed.sizes, listed.links
        for part in list(parts(sizes, range(len(sizes)), copying.LOOK_BYTES)) or [[]]:
            request = {
                **self._place,
                "listed": encode([[listed.files[at] for at in part], links]),
                "again": again,
                "remember": remember,
            }
            links, count = [], len(links)
            limit = TIMEOUT + len(part) * EACH + sum(sizes[at] for at in part) / READS
            for name, said in self._ask("look", dict.fromkeys(self.lacks, request), limit).items():
                if isinstance(said, str):
                    self._fail(name, said)
                elif not self.lacks[name].add(said, min(part, default=0), len(part), count):
                    self._fail(name, answers.SHAPELESS)

    def additional(self, listed: DataListing) -> dict[str, Json]:
        """Return the files of each node that the source does not have."""
        request = {**self._place, "paths": encode([*listed.paths, *(path for path, _ in listed.links)])}
        there = [name for name, lack in self.lacks.items() if len(lack.missing) < len(listed.files) or lack.changed]
        said = self._ask("additional", dict.fromkeys(there, request), TIMEOUT * 5)
        for name, one in said.items():
            if isinstance(one, str) or not isinstance(one.get("names"), list):
                self._fail(name, one if isinstance(one, str) else answers.SHAPELESS)
        return {name: one for name, one in said.items() if name in self.lacks and not isinstance(one, str)}

    def against(self, listed: DataListing) -> dict[str, list[str]]:
        """Return, by node, the problems that prevent the copy."""
        union, sizes = self.union, listed.sizes
        found = {name: copying.against(self.target, lack, sizes, union) for name, lack in self.lacks.items()}
        return {name: sentences for name, sentences in found.items() if sentences}

    @property
    def union(self) -> list[int]:
        """The positions, in the listing, of all files that at least one node lacks."""
        return sorted(set().union(*(lack.files for lack in self.lacks.values())))

    # ------------------------------------------------------------ copying

    def copy(self, listed: DataListing) -> None:
        """Copy the missing files to all nodes."""
        union, sizes = self.union, listed.sizes
        total, done, began = sum(sizes[at] for at in union), 0, time.monotonic()
        for places in list(parts(sizes, union)):
            self._part(listed, places)
            if not self.lacks:
                return
            done += sum(sizes[at] for at in places)
            rate = copying.rate(done, time.monotonic() - began)
            names = plural(len(self.lacks), "node")
            self.say(f"{self.target}: {gigabytes(done)} of {gigabytes(total)} copied to {names}, {rate}")
        self._finish(listed)

    def _part(self, listed: DataListing, places: list[int]) -> None:
        part = DataPart([listed.files[at] for at in places], "" if self.asked.node else self.asked.source)
        files = encode([part.files, []])
        limit = TIMEOUT + len(places) * EACH + 2 * sum(file.size for file in part.files) / READS
        stores = self._stores()
        stage = {
            name: {
                **self._place,
                "store": store,
                "listed": files,
                "source": self.asked.source if name == self.asked.node else "",
            }
            for name, store in stores.items()
        }
        self._drop("stage", stage, limit)
        self._bring(part)
        place: dict[str, Json] = {}
        for name, store in self._stores().items():
            lacking = self.lacks[name].files if name in self.lacks else set()
            place[name] = {
                "folder": "" if self.asked.gives_only(name) else self.target,
                "kept": KEPT,
                "store": store,
                "listed": files,
                "digest": digest_of(part),
                "lacking": [at for at, where in enumerate(places) if where in lacking],
            }
        self._drop("place", place, limit)

    def _bring(self, part: DataPart) -> None:
        """Distribute a part to the stores of all participating nodes. Exclude nodes that fail."""
        while self.lacks:
            stores = self._stores()
            ways = {name: DistributionNode(self.addresses[name], store) for name, store in stores.items()}
            task = Distribution(
                ways,
                self.port,
                self.messages,
                self.say,
                never,
                privileged=True,
                what=self.target,
                copied=False,
                body=BODY,
            )
            task.look(part)
            if task.lacks and all(task.lacks.values()):
                if self.asked.node:
                    if self.asked.node not in self.failures:
                        self._fail(self.asked.node, f"{self.asked.source} was changed after it was read")
                    for name in [*self.lacks]:
                        self._fail(name, f"{self.asked.node} could not send the data")
                    return
                first = seed({name: task.bytes_of(part, lacks) for name, lacks in task.lacks.items()})
                task.send(part, first)
                if first not in task.failures:
                    self.came.setdefault(first, {})["the controller"] = None
            failed = task.spread(part)
            for name, sources in task.came.items():
                self.came.setdefault(name, {}).update(dict.fromkeys(sources))
            lost = {name for name in stores if task.lacks.get(name, {""})}
            if not lost:
                return
            for name in [name for name in lost if name in failed] or lost:
                self._fail(name, failed.get(name, "no node could send the missing data"))

    def _finish(self, listed: DataListing) -> None:
        requests = {}
        for name, store in self._stores().items():
            wrong = self.lacks[name].links if name in self.lacks else set()
            links = [listed.links[at] for at in sorted(wrong)]
            requests[name] = {**self._place, "store": store, "listed": encode([[], links])}
        self._drop("finish", requests, TIMEOUT + len(listed.links) * EACH)

    # ------------------------------------------------------------ messages

    @property
    def _place(self) -> Json:
        return {"folder": self.target, "kept": KEPT}

    def _stores(self) -> dict[str, str]:
        """Return the folder for transferred files of each participating node."""
        found = dict.fromkeys(self.lacks, f"{self.target}/{STORE}")
        if self.asked.node and self.asked.node not in self.failures:
            found.setdefault(self.asked.node, f"{KEPT}/store")
        return found

    def _fail(self, name: str, sentence: str) -> None:
        self.failures.setdefault(name, []).append(sentence)
        self.lacks.pop(name, None)

    def _drop(self, verb: str, requests: Mapping[str, Json], limit: float) -> None:
        """Send a request to the nodes, and exclude nodes that fail."""
        for name, said in self._ask(verb, requests, limit).items():
            if isinstance(said, str):
                self._fail(name, said)

    def _ask(self, verb: str, requests: Mapping[str, Json], limit: float) -> dict[str, Json | str]:
        """Return the response of each node, or the error."""
        for name, request in requests.items():
            self.messages.ask(name, verb, request, privileged=True, program=PROGRAM)
        got = self.messages.gather(verb, requests, limit, lambda _: None)
        found: dict[str, Json | str] = {}
        for name in requests:
            answer = got.get(name)
            data = answer.data if answer else None
            if not isinstance(data, dict):
                found[name] = why(answer, limit)
            else:
                found[name] = answers.failure(data) or data
        return found


def never() -> bool:
    return False
