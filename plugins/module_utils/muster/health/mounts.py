"""Folders of a file server: whether each answers, and whether those that are requested are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..shared_data.request import mounts_of
from ..verdict.check import Check, skip_all
from ..verdict.commands import playbook, shell

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said

SILENT = Check(
    "data.silent",
    seen="sandbox",
    reads="every mounted file system of another machine, by one call that a process of its own makes",
    fires="fail: it does not answer within 4 s. Whoever uses it waits, and a launch that does hangs without a word",
    fix="Look at the file server, and at the way to it",
)
BROKEN = Check(
    "data.broken",
    seen="sandbox",
    reads="every mounted file system of another machine",
    fires="fail: it answers with an error, such as a stale file handle",
    fix="End the mount; the next one who uses the folder mounts it anew",
)
MISSING = Check(
    "data.missing",
    seen="sandbox",
    reads="the folders of shared_data_mounts, by using each",
    fires="fail: nothing is mounted there, or something else than what is requested",
    fix="Mount it with",
    command=playbook("site.yml", tags="network"),
)
CHECKS = (SILENT, BROKEN, MISSING)
LOOKS = ("mounts",)


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    node, looked = request["node"], facts["mounts"]
    why = looked["why"] if looked else "what is mounted was not looked at"
    if why:
        yield from skip_all(CHECKS, why)
        return
    seen = looked["folders"]
    requested = {mount.path: mount for mount in mounts_of(request["shares"])}
    for path, one in seen.items():
        if one["late"]:
            server = one["source"] or (requested[path].source if path in requested else "its server")
            yield SILENT.fail(
                node,
                f"{path} ({server}) does not answer: whoever uses it waits, and so does a launch",
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
                f"{one['source']} is mounted on {path}, and not {mount.source}",
                observed=one["source"],
                expected=mount.source,
            )


def _is_bind(options: str) -> bool:
    """A folder of the node itself: the kernel shows the file system that it lies on as its source."""
    return "bind" in options.split(",")
