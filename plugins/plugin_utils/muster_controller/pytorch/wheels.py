"""Distributes the wheels of one environment from nodes that have the wheels to all nodes that need them."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from muster.distribution import answers
from muster_controller.nodes.distribution import Distribution, DistributionNode, why
from muster_node.distribution import manifest
from muster_node.distribution.manifest import ManifestFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from muster.pytorch.lock import WheelSection
    from muster_controller.nodes.messages import Messages

LOOK_TIMEOUT = 120.0  # seconds, to read up to 4 GB


@dataclass(frozen=True)
class Wheels:
    """Content for Distribution that exists only on nodes."""

    files: Sequence[ManifestFile]

    def read(self, file: ManifestFile, begin: int, most: int) -> bytes:
        raise LookupError(f"the controller does not have {file.path} (bytes {begin} to {begin + most})")


class WheelSharing:
    """folder: the folder on every node for the wheels of this section. addresses: the addresses of the nodes on the
    training network."""

    def __init__(
        self,
        section: WheelSection,
        folder: str,
        addresses: Mapping[str, str],
        port: int,
        messages: Messages,
        say: Callable[[str], None],
        *,
        privileged: bool,
    ) -> None:
        self.files = [(wheel.file, wheel.sha256) for wheel in section.wheels]
        self.messages = messages
        places = {name: DistributionNode(address, folder, plain=True) for name, address in addresses.items()}
        self.distribution = Distribution(
            places, port, messages, say, lambda: False, privileged=privileged, what=f"wheels of {section.title}"
        )
        self.sizes: dict[str, Counter[int]] = defaultdict(Counter)  # one node must not decide about the size of a wheel
        self.room: dict[str, int] = {}

    def look(self, receivers: Sequence[str]) -> None:
        """Inspect the wheels of each node. Exclude nodes that do not respond, and incomplete nodes that do not need
        wheels."""
        task = self.distribution
        known = dict(self.files)
        request = {"files": self.files, "port": task.port}
        asked = {name: {"folder": place.store, **request} for name, place in task.places.items()}
        for name, answer in task.ask("kept", asked, LOOK_TIMEOUT).items():
            found = answers.kept(answer.data, set(known)) if answer and answer.data is not None else None
            if found is None or found["error"]:
                task.failures[name] = found["error"] if found else why(answer, LOOK_TIMEOUT)
                continue
            for wheel, size in found["sizes"].items():
                self.sizes[wheel][size] += 1
            lacks = {sha256 for wheel, sha256 in known.items() if wheel not in found["sizes"]}
            if lacks and name not in receivers:
                continue
            task.lacks[name] = lacks
            self.room[name] = found["room"]
            if found["port_free"]:
                task.port_free.add(name)

    @property
    def holders(self) -> list[str]:
        return [name for name, lacks in self.distribution.lacks.items() if not lacks]

    def spread(self) -> dict[str, str]:
        """Distribute the wheels to all incomplete nodes. Return the errors by node."""
        task = self.distribution
        if not (self.files and self.holders):
            return {}
        usual = {name: self.sizes[name].most_common(1)[0][0] for name, _ in self.files}
        listed = [ManifestFile(name, executable=False, size=usual[name], sha256=sha256) for name, sha256 in self.files]
        content = Wheels(manifest.parse(manifest.render(listed)))
        for name, lacks in list(task.lacks.items()):
            needed = 2 * task.bytes_of(content, lacks)
            if needed > self.room[name]:
                task.failures[name] = f"{task.places[name].store} does not have {needed} bytes of free space"
                del task.lacks[name]
        return task.spread(content)
