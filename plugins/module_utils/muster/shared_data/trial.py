"""Evaluate the trial of a shared folder. Every node wrote a file, waited for the files of the other nodes, and read one
of them.

Answers of nodes are untrusted input. An answer with an unexpected structure counts as no answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..verdict.check import Check
from ..verdict.commands import shell
from ..verdict.words import few, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..verdict.check import Said

# nfs(5), close-to-open consistency: a file that was closed on one node is visible to an open that starts later on
# another. One second allows for a busy server.
SOON = 1.0
WAIT = 5.0  # seconds that a node waits for the other nodes' files
CLOSED = ("EACCES", "EPERM", "EROFS")

UNWRITABLE = Check(
    "data.trial.unwritable",
    seen="sandbox",
    reads="a file that each node writes into the folder as the training user (playbooks/data.yml)",
    fires="fail: one node cannot write the file while others can, or the folder is full or does not respond",
    fix="Compare the export's options and the folder's owner and mode",
)
UNSEEN = Check(
    "data.trial.unseen",
    seen="sandbox",
    reads="the files of all other nodes, as each node sees them (playbooks/data.yml)",
    fires=f"fail: a file is not visible within {WAIT:.0f} s or has different content. warn: it becomes visible only "
    f"after {SOON:.0f} s",
    fix="Compare the mounts on both nodes",
)
OWNER = Check(
    "data.trial.owner",
    seen="sandbox",
    reads="the owner of each file, as the other nodes see it (playbooks/data.yml)",
    fires="fail: the file belongs to another user, because uids differ between nodes or the server maps users",
    fix="Give the account the same uid on every node, or check the export's squash options and idmapd",
)
CHECKS = (UNWRITABLE, UNSEEN, OWNER)


@dataclass
class FolderTrial:
    """The trial of one folder.

    wrote, saw, read: the answers of each node. names: name of the file that each node wrote. megabytes: size of each
    file. silent: why a node did not take part.
    """

    path: str
    names: Mapping[str, str]
    megabytes: int
    wrote: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    saw: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    read: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)

    @property
    def writers(self) -> list[str]:
        return [node for node, one in self.wrote.items() if not said(one)]

    def training_user(self, node: str, writer: str) -> Any:
        """Return the training user's UID on the reading node. If that node did not report it, return the UID on the
        writing node.

        The UIDs can differ if the server maps UIDs by name (NFS 4).
        """
        told = self.wrote.get(node, {}).get("uid")
        return self.wrote[writer].get("uid") if told is None else told


def said(answer: Mapping[str, Any]) -> str:
    error = answer.get("error")
    return error if isinstance(error, str) else "invalid answer"


def judge(trial: FolderTrial) -> Iterator[Said]:
    closed = [node for node, one in trial.wrote.items() if one.get("kind") in CLOSED]
    everywhere = len(closed) == len(trial.wrote) and bool(closed)
    for node, why in trial.silent.items():
        yield UNWRITABLE.unknown(node, f"{trial.path} was not tested: {why}", "Check the node")
    for node, one in trial.wrote.items():
        why = said(one)
        if everywhere:
            yield UNWRITABLE.skip(f"{trial.path} is not writable for the training user ({why})", node)
        elif why:
            others = f", while {few(trial.writers)} can" if trial.writers else ""
            yield UNWRITABLE.fail(
                node,
                f"the training user cannot write to {trial.path}: {why}{others}",
                command=shell("findmnt {path}; ls -ld {path}", path=trial.path),
                observed=why,
            )
    for node, answer in trial.saw.items():
        yield from _seen(trial, node, answer)


def _seen(trial: FolderTrial, node: str, answer: Mapping[str, Any]) -> Iterator[Said]:
    why = said(answer)
    if why:
        yield UNSEEN.fail(
            node, f"{trial.path} cannot be read: {why}", command=shell("findmnt {path}", path=trial.path), observed=why
        )
        return
    seen = answer.get("seen")
    found: Mapping[str, Any] = seen if isinstance(seen, dict) else {}
    missing, late, foreign = [], {}, {}
    for writer in trial.writers:
        if writer == node:
            continue
        one = found.get(trial.names[writer])
        if not isinstance(one, dict) or one.get("right") is not True:
            missing.append(writer)
            continue
        after, uid = number(one.get("after")), one.get("uid")
        if after is None or after > SOON:
            late[writer] = after
        if uid != trial.training_user(node, writer):
            foreign[writer] = uid
    if missing:
        yield UNSEEN.fail(
            node,
            f"files that {few(missing)} wrote to {trial.path} are not visible within {WAIT:.0f} s: the folders differ",
            command=shell("findmnt {path}", path=trial.path),
        )
    elif late:
        slowest = max(late, key=lambda writer: late[writer] or WAIT)
        yield UNSEEN.warn(
            node,
            f"the file that {slowest} wrote to {trial.path} is visible only after {late[slowest] or WAIT:.1f} s",
            "Check the load of the server and the attribute cache of the mount (nfs(5))",
            shell("findmnt {path}", path=trial.path),
        )
    if not missing and not late and not foreign and node in trial.wrote:
        yield UNSEEN.passed(node, f"the other nodes' files in {trial.path} are visible, with the right owner")
    for writer, uid in foreign.items():
        own = trial.training_user(node, writer)
        yield OWNER.fail(
            node,
            f"a file that the training user wrote to {trial.path} on {writer} has uid {uid} here, but the"
            f" training user has uid {own}",
            command=shell("id; ls -ln {path}", path=trial.path),
            observed=str(uid),
            expected=str(own),
        )


def number(value: Any) -> float | None:
    return (
        float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e6 else None
    )


def rates(trial: FolderTrial) -> list[dict[str, Any]]:
    """Return {node, write, read, seen} of each node.

    write, read: MB/s while all nodes write or read at the same time. seen: seconds until the last file of the other
    nodes was visible. None means unknown.
    """
    rows = []
    for node in trial.names:
        if node in trial.silent:
            continue
        seen = trial.saw.get(node, {}).get("seen")
        after = (
            [number(one.get("after")) for one in seen.values() if isinstance(one, dict)]
            if isinstance(seen, dict)
            else []
        )
        known = [one for one in after if one is not None]
        rows.append(
            {
                "node": node,
                "write": speed(trial.megabytes, trial.wrote.get(node, {})),
                "read": speed(trial.megabytes, trial.read.get(node, {})),
                "seen": round(max(known), 2) if known else None,
            }
        )
    return rows


def speed(megabytes: int, answer: Mapping[str, Any]) -> float | None:
    took = number(answer.get("took"))
    if not took or said(answer):
        return None
    return round(megabytes * (1 << 20) / 1e6 / took, 1)


def table(trial: FolderTrial) -> list[str]:
    rows = rates(trial)
    lines = [f"{trial.path}, {trial.megabytes} MiB from each of {plural(len(rows), 'node')} at once:"]
    lines.append(f"  {'node':<20} {'writes, MB/s':>13} {'reads, MB/s':>12} {'sees after, s':>14}")
    for row in rows:
        write, read, seen = ("-" if row[name] is None else f"{row[name]:g}" for name in ("write", "read", "seen"))
        lines.append(f"  {row['node']:<20} {write:>13} {read:>12} {seen:>14}")
    return lines


def summary(trials: Sequence[FolderTrial], status: str) -> str:
    folders = few([trial.path for trial in trials])
    if not trials:
        return "no shared folders to test (shared_data_mounts)"
    nodes = len({node for trial in trials for node in trial.wrote})
    if status == "healthy":
        return f"{folders}: each of {nodes} nodes sees the other nodes' files within {SOON:.0f} s, with the right owner"
    return f"{folders}: tested from {nodes} nodes, with findings"
