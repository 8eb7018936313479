"""Choose a node's section of the lock, and remove the sections that no node requests any more. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .lock import WheelSection, asked_by, same_place
from .request import TORCH, EnvironmentRequest, EnvironmentRequestError, make_plain_request, make_request

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

UNASKED = "auto"


@dataclass(frozen=True)
class Ask:
    """The request in the inventory for a node.

    auto: the build that `auto` selects on nodes with GPUs; "" for the index's default build. ranges: whether the
    packages come from a requirements file instead of exact pins. package: the main package of the environment. If it is
    not torch, torch_version contains the version of this package.
    """

    torch_version: str
    variant: str
    gpus: int
    packages: tuple[str, ...]
    auto: str = ""
    ranges: bool = False
    package: str = TORCH

    def request(self, python: str, variant: str = "") -> EnvironmentRequest:
        if self.package != TORCH:
            version = self.torch_version
            return make_plain_request(self.package, version=version, packages=self.packages, python=python)
        variant = variant or self.variant
        if variant == UNASKED and self.gpus:
            variant = self.auto if self.auto not in ("", "cpu") else "cuda"
        return make_request(
            torch_version=self.torch_version,
            variant=variant,
            gpus=self.gpus,
            packages=self.packages,
            python=python,
            ranges=self.ranges,
        )


@dataclass(frozen=True)
class SectionChoice:
    """The final request, its section of the lock (if there is one), and a note for the user."""

    request: EnvironmentRequest
    section: WheelSection | None = None
    note: str = ""


def choose(
    sections: Iterable[WheelSection], ask: Ask, python: str, machine: str, reviewed: Iterable[WheelSection] = ()
) -> SectionChoice:
    """Choose the section for a Python version and machine type.

    reviewed: sections shipped with Muster, used if the lock has none.
    """
    here = [section for section in sections if section.is_for(python, machine)]
    request = ask.request(python)
    found = _section_for(here, request)
    if found is None and ask.variant == UNASKED and ask.gpus:
        # A build that differs from the current choice of auto, and that all nodes set up earlier have.
        for section in sorted(here, key=_newest_build):
            if section.variant != "cpu" and _section_for([section], ask.request(python, section.variant)):
                request, found = ask.request(python, section.variant), section
                break
    if found is None:
        found = _section_for((section for section in reviewed if section.is_for(python, machine)), request)
    if found is None:
        return SectionChoice(request)
    note = ""
    if ask.auto and found.variant != ask.request(python).variant:
        note = (
            f"the lock has PyTorch build {found.variant}, which the other nodes use; auto would now select"
            f" {ask.auto}. To change all nodes, set pytorch_variant to {ask.auto}"
        )
    return SectionChoice(with_lock(request, found), found, note)


def with_lock(request: EnvironmentRequest, section: WheelSection) -> EnvironmentRequest:
    return replace(request, locked={wheel.name: wheel.version for wheel in section.wheels})


def _section_for(sections: Iterable[WheelSection], request: EnvironmentRequest) -> WheelSection | None:
    asked = asked_by(request)
    return next((s for s in sections if s.variant == request.variant and s.asked == asked), None)


def _newest_build(section: WheelSection) -> tuple[int, str]:
    return (-int(section.variant[2:]) if section.variant[2:].isdigit() else 0, section.variant)


def updated(sections: Sequence[WheelSection], new: WheelSection, asks: Iterable[Ask]) -> tuple[WheelSection, ...]:
    """Return the lock with the new section added and without sections that no node in the inventory requests."""
    asks = tuple(asks)
    kept = [
        section
        for section in sections
        if not (same_place(section, new) and section.asked == new.asked) and still_asked(section, asks)
    ]
    return (*kept, new)


def still_asked(section: WheelSection, asks: Iterable[Ask]) -> bool:
    for ask in asks:
        if ask.variant == UNASKED:
            if (section.variant == "cpu") == bool(ask.gpus):
                continue
        elif ask.variant != section.variant:
            continue
        try:
            request = ask.request(section.python, section.variant)
        except EnvironmentRequestError:
            continue  # an impossible request is reported when that node's turn comes
        if asked_by(request) == section.asked:
            return True
    return False
