"""The next boot of the node: whether the NVIDIA driver will work with the kernel that is booted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..inspect.facts import next_boot_facts
from ..nvidia_driver.next_boot import NEXT_BOOT, findings, next_boot

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..nvidia_driver.facts import NextBootFacts
    from ..verdict.check import Said

CHECKS = (NEXT_BOOT,)
LOOKS = ("next_boot",)


def facts_of(looks: Mapping[str, Any], _: Mapping[str, Any]) -> NextBootFacts:
    return next_boot_facts(looks["next_boot"])


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    seen: NextBootFacts = facts["next_boot"]
    boot = next_boot(seen, secure_boot=seen["secure_boot"], key_enrolled=seen["key_enrolled"])
    yield from findings(request["node"], boot)
