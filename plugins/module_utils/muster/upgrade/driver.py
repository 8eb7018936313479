"""Plan the driver upgrade of a node: the change, the packages that are kept, and the rollback."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..nvidia_driver.family import is_part
from ..nvidia_driver.model import DriverRequest as Wanted
from ..verdict.commands import on_node, playbook, shell
from .model import VersionChange

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from ..nvidia_driver.model import DriverState

# Folder of root on each node with the packages for a rollback, until the upgrade is accepted or the next one starts
KEPT = "/var/lib/muster/driver_before"
INSTALL = "apt-get install --yes --allow-downgrades --allow-change-held-packages --no-install-recommends"


@dataclass(frozen=True)
class Turn:
    """The upgrade of one node.

    keep: installed packages to keep for a rollback, as name=version. goes_back: whether a rollback is possible.
    """

    changes: tuple[VersionChange, ...] = ()
    keep: tuple[str, ...] = ()
    goes_back: bool = False
    refusals: tuple[str, ...] = ()


def turn_of(node: str, stack: Mapping[str, Any], seen: DriverState, *, mode: str, reboots: bool) -> Turn:
    """Plan the upgrade of a node.

    stack: the stack resolved for all nodes. mode: nvidia_driver_mode of the node. reboots: whether the node may be
    rebooted.
    """
    own = stack["nodes"].get(node)
    if not own or not seen.gpu_slots:
        return Turn()
    wanted = Wanted(source=own["source"], branch=stack["branch"], exact=stack["driver"])
    if wanted.fits(seen.installed) and seen.works:
        return Turn()
    refusals = tuple(f"{node}: {why}" for why in _unfit(seen, mode, reboots=reboots))
    after = f"{stack['driver'] or stack['branch']} from {own['source']}"
    # After an interrupted upgrade, the rollback uses the packages that were kept before.
    is_old = seen.installed and not wanted.fits(seen.installed) and not seen.broken
    keep = tuple(kept_packages(seen)) if is_old else ()
    return Turn((VersionChange("driver", seen.installed, after),), keep, bool(seen.installed), refusals)


def turn_from(shape: Mapping[str, Any]) -> Turn:
    """Create a Turn from a mapping created by asdict, which plugins pass as JSON."""
    lists = {name: tuple(shape[name]) for name in ("keep", "refusals")}
    changes = tuple(VersionChange(**one) for one in shape["changes"])
    return Turn(changes, goes_back=shape["goes_back"], **lists)


def by_hand(release: str, node: str) -> str:
    how = playbook("playbooks/gpu_stack.yml", gpu_stack_driver=release)
    return f"Muster does not reboot the controller. To install the driver: {how} --limit {shlex.quote(node)}"


def _unfit(seen: DriverState, mode: str, *, reboots: bool) -> Iterator[str]:
    if mode != "manage":
        yield f"nvidia_driver_mode is {mode}, so Muster does not change the driver"
    if not reboots:
        yield "nvidia_driver_reboot is never, but a new driver requires a reboot"
    left = seen.stack["runfile"]
    if left["programs"] or left["libraries"]:
        yield "the driver was installed from a runfile, so no packages can be kept for a rollback (docs/gpu_driver.md)"


def kept_packages(seen: DriverState) -> Iterator[str]:
    """Yield every installed part of the driver as name=version."""
    for name, package in seen.packages.items():
        if is_part(name) and package["state"] == "installed":
            yield f"{name}={package['version']}"


def going_back(node: str, turn: Turn, there: Collection[str] = ()) -> list[str]:
    """Return the rollback commands.

    there: installed packages of the stack; those that the upgrade added are removed.
    """
    if not turn.goes_back:
        return []
    before = {spec.partition("=")[0] for spec in turn.keep}
    goes = [f"{name}-" for name in sorted(there) if before and is_part(name) and name not in before]
    install = shell(f"{INSTALL} {KEPT}/*.deb {{goes}}", goes=goes) if goes else f"{INSTALL} {KEPT}/*.deb"
    return [
        on_node(node, "sh -c {install}", install=install, become=True),
        on_node(node, "shutdown -r +1", become=True),
    ]
