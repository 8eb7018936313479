"""Check that network file systems respond, and that the requested file systems are mounted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..shared_data.request import mounts_of
from ..verdict.check import Check, skip_all
from ..verdict.commands import playbook, shell
from ..verdict.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said

SILENT = Check(
    "data.silent",
    seen="sandbox",
    reads="every mounted network file system, by one system call in a separate process",
    fires="fail: the mount does not respond within 4 s, so processes that use it block, and a launch hangs silently; "
    "unknown: mounts were not tested within 8 s, or a mount of a user hides them. FUSE mounts of users do not count",
    fix="Check the file server and the network path to it. Show the kernel's messages with",
)
BROKEN = Check(
    "data.broken",
    seen="sandbox",
    reads="every mounted network file system",
    fires="fail: the mount returns an error, such as a stale file handle",
    fix="The next access mounts the file system again. Unmount the file system with",
)
MISSING = Check(
    "data.missing",
    seen="sandbox",
    reads="the folders in shared_data_mounts, by accessing each",
    fires="fail: the requested file system is not mounted, or another file system is mounted on the folder",
    fix="Mount the file system with",
    command=playbook("site.yml", tags="network"),
)
CHECKS = (SILENT, BROKEN, MISSING)
LOOKS = ("mounts",)


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    node, looked = request["node"], facts["mounts"]
    why = looked["why"] if looked else "the mounts were not checked"
    if why:
        yield from skip_all(CHECKS, why)
        return
    seen = looked["folders"]
    requested = {mount.path: mount for mount in mounts_of(request["shares"])}
    if looked["left_out"]:
        yield SILENT.unknown(
            node, f"{plural(looked['left_out'], 'mount')} could not be tested", "Show the mounts with", shell("findmnt")
        )
    for path, one in seen.items():
        if one["late"]:
            server = one["source"] or (requested[path].source if path in requested else "its server")
            yield SILENT.fail(
                node,
                f"{path} ({server}) does not respond, so processes that use it block, including launches",
                command=shell(
                    "sudo journalctl -kb --no-pager --grep 'not responding|timed out'; findmnt {path}", path=path
                ),
                observed=one["why"],
            )
        elif one["why"] and one["source"]:
            yield BROKEN.fail(
                node,
                f"{path} ({one['source']}) cannot be used: {one['why']}",
                command=shell("sudo umount -l {path}", path=path),
                observed=one["why"],
            )
    for path, mount in requested.items():
        one = seen.get(path)
        if one is None or one["late"]:
            continue
        if not one["source"]:
            why = f": {one['why']}" if one["why"] else ""
            yield MISSING.fail(
                node,
                f"{mount.source} is not mounted on {path}{why}",
                expected=mount.source,
            )
        elif one["source"] != mount.source and not _is_bind(mount.options):
            yield MISSING.fail(
                node,
                f"{one['source']} is mounted on {path} instead of {mount.source}",
                observed=one["source"],
                expected=mount.source,
            )


def _is_bind(options: str) -> bool:
    """Return whether a mount is a bind mount. For bind mounts, the kernel shows the underlying file system as the
    source."""
    return "bind" in options.split(",")
