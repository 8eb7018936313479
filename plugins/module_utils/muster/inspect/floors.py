"""Compare the versions on a node with the security floors in roles/gpu_stack/files/floors.yml."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..verdict.check import Check

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ..verdict.check import Said

TABLE = "roles/gpu_stack/files/floors.yml"
BELOW = Check(
    "sw.security_floor",
    seen="stand-in",
    reads="the versions of the driver, the kernel, adapter firmware, and packages of containers, CUDA, DCGM and Slurm",
    fires="a version is below the security floor in Muster's table (warn). Versions of packages whose fixes a"
    " distribution backports are not compared (skipped)",
    fix="Install {at_least} or newer",
)
_UPSTREAM = re.compile(r"(?:\d+:)?(\d+(?:[.-]\d+)*)")


@dataclass(frozen=True)
class SecurityFloor:
    """A row of the table, as described in the table."""

    of: str
    series: str
    at_least: str
    advisory: str
    backported: bool = False


def floors_of(table: Mapping[str, list[dict[str, Any]]]) -> tuple[SecurityFloor, ...]:
    return tuple(SecurityFloor(**row) for row in table["floors"])


def below(
    node: str, floors: Iterable[SecurityFloor], packages: Mapping[str, str], kernel: str, firmware: Mapping[str, str]
) -> Iterator[Said]:
    """Yield the versions below their floors. packages: versions by name, also of the driver as "driver". kernel: its
    release. firmware: versions by adapter, whose first number is the product."""
    adapters = {f"firmware {name}": version.partition(".")[2] for name, version in firmware.items()}
    seen = {**packages, f"kernel {kernel.rpartition('-')[2]}": kernel, **adapters}
    unknown = []
    for floor in floors:
        for name, version in seen.items():
            if not re.fullmatch(floor.of, name) or not _is_below(version, floor):
                continue
            if floor.backported:
                unknown.append(f"{name} {version}")
                continue
            said = f"{name} {version} is below the security floor {floor.at_least}: advisory {floor.advisory}"
            yield BELOW.warn(node, said, named={"at_least": floor.at_least}, observed=version, expected=floor.at_least)
    if unknown:
        why = "distributions backport fixes without a new version, so these versions prove nothing"
        yield BELOW.skip(f"{', '.join(unknown)}: {why}", node)


def _is_below(version: str, floor: SecurityFloor) -> bool:
    found = _UPSTREAM.match(version)
    number, series, least = (_numbers(text) for text in (found[1] if found else "", floor.series, floor.at_least))
    return bool(number) and number[: len(series)] == series and number < least


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))
