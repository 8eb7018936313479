"""What came of a trial of a shared folder: every node wrote a file, looked for the others', and read one of them.

Answers of nodes are foreign input: what has another shape counts as no answer.
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

# A file that another node has written and has on the server is there for a look that begins afterwards: nfs(5), close
# to open. A second is what an answer takes where the server is busy.
SOON = 1.0
WAIT = 5.0  # seconds that a node waits for the files of others
CLOSED = ("EACCES", "EPERM", "EROFS")

UNWRITABLE = Check(
    "data.trial.unwritable",
    seen="sandbox",
    reads="a file that each node writes into the folder as the training user (playbooks/data.yml)",
    fires="fail: it cannot be written on one node while it can on others, or the folder is full or does not answer",
    fix="Compare the export's options and the folder's owner and mode",
)
UNSEEN = Check(
    "data.trial.unseen",
    seen="sandbox",
    reads="whether each node sees what every other one has written (playbooks/data.yml)",
    fires=f"fail: it is not there within {WAIT:.0f} s, or says something else: it is not the same folder. warn: that "
    f"took more than {SOON:.0f} s",
    fix="Compare what is mounted on both nodes",
)
OWNER = Check(
    "data.trial.owner",
    seen="sandbox",
    reads="whose the files are on other nodes than the one that wrote them (playbooks/data.yml)",
    fires="fail: another user's: accounts have other numbers there, or the server gives files to somebody else",
    fix="Give the account the same uid on every node, or look at the export's squash options and idmapd",
)
CHECKS = (UNWRITABLE, UNSEEN, OWNER)


@dataclass
class FolderTrial:
    """Of one folder. wrote, saw, read: what each node answered. names: of the file that each node wrote. megabytes: of
    each. silent: why a node took no part."""

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
        """Its uid on the node that looks, which may differ from the writer's where the server goes by names (NFS 4);
        the writer's where the node that looks has not told its own."""
        told = self.wrote.get(node, {}).get("uid")
        return self.wrote[writer].get("uid") if told is None else told


def said(answer: Mapping[str, Any]) -> str:
    error = answer.get("error")
    return error if isinstance(error, str) else "its answer is of no use"


def judge(trial: FolderTrial) -> Iterator[Said]:
    closed = [node for node, one in trial.wrote.items() if one.get("kind") in CLOSED]
    everywhere = len(closed) == len(trial.wrote) and bool(closed)
    for node, why in trial.silent.items():
        yield UNWRITABLE.unknown(node, f"{trial.path} was not tried there: {why}", "Look at the node")
    for node, one in trial.wrote.items():
        why = said(one)
        if everywhere:
            yield UNWRITABLE.skip(f"{trial.path} is not the training user's to write ({why})", node)
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
            f"what {few(missing)} wrote to {trial.path} is not there within {WAIT:.0f} s: it is not the same folder",
            command=shell("findmnt {path}", path=trial.path),
        )
    elif late:
        slowest = max(late, key=lambda writer: late[writer] or WAIT)
        yield UNSEEN.warn(
            node,
            f"what {slowest} wrote to {trial.path} is there after {late[slowest] or WAIT:.1f} s only",
            "Look at the server's load, and at the attribute cache of the mount (nfs(5))",
            shell("findmnt {path}", path=trial.path),
        )
    if not missing and not late and not foreign and node in trial.wrote:
        yield UNSEEN.passed(node, f"what the others wrote to {trial.path} is there, and theirs")
    for writer, uid in foreign.items():
        own = trial.training_user(node, writer)
        yield OWNER.fail(
            node,
            f"a file that the training user wrote to {trial.path} on {writer} belongs to uid {uid} here, and the"
            f" training user is uid {own}",
            command=shell("id; ls -ln {path}", path=trial.path),
            observed=str(uid),
            expected=str(own),
        )


def number(value: Any) -> float | None:
    return (
        float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e6 else None
    )


def rates(trial: FolderTrial) -> list[dict[str, Any]]:
    """Of each node: {node, write, read, seen}: MB/s while all nodes write, and read, at once; seconds until it saw
    the last of the others' files. None is not known."""
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
        return "there is no shared folder to try (shared_data_mounts)"
    nodes = len({node for trial in trials for node in trial.wrote})
    if status == "healthy":
        return f"{folders}: {nodes} nodes see within {SOON:.0f} s what each of them wrote, with the right owner"
    return f"{folders}: tried from {nodes} nodes, with findings"
