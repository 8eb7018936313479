"""Write the node names to the hosts file, and prevent cloud-init from overwriting it."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.muster.network import hosts_file as domain
from ansible.module_utils.muster.verdict.commands import playbook

from ..tools import files
from ..tools.result import RefusedError, diff, refuse

if TYPE_CHECKING:
    from collections.abc import Iterable

PATH = Path("/etc/hosts")
# Settings of cloud-init; without this folder, cloud-init is not configured.
CLOUD = Path("/etc/cloud")
# Read last, so it overrides the other files of the folder.
DROP_IN = "cloud.cfg.d/99-muster-hosts.cfg"
# Vendor and user data of the current instance, as stored by cloud-init.
INSTANCE = Path("/var/lib/cloud/instance")
INSTANCE_FILES = ("vendor-cloud-config.txt", "vendor2-cloud-config.txt", "cloud-config.txt")
# cloud-init uses the template of the OS family (debian, also for Ubuntu), otherwise the plain one.
TEMPLATES = ("templates/hosts.debian.tmpl", "templates/hosts.tmpl")


def read(path: Path) -> str:
    """Return the complete text of a file; "" if the file is missing. Raises RefusedError."""
    if path.is_symlink():
        raise RefusedError(
            f"{path} is a link to {path.readlink()}, so it belongs to another tool. "
            "Add the names in that tool and set cluster_hosts_mode to verify, or replace the link with a file"
        )
    try:
        content: bytes = files.read(str(path))
    except FileNotFoundError:
        return ""
    except OSError as problem:
        raise RefusedError(f"{path} cannot be read: {problem.strerror}") from problem
    return content.decode("utf-8", "surrogateescape")


def text_of(path: Path) -> str:
    """Return the text of a file that Muster does not change; "" if the file is unreadable."""
    return files.text(str(path), links=True) or ""


def write(path: Path, text: str) -> None:
    """Replace the file atomically, keeping mode and owner."""
    try:
        files.replace(str(path), text.encode("utf-8", "surrogateescape"), mode=0o644, keep=True, parents=True)
    except OSError as problem:
        raise RefusedError(
            f"{path} cannot be replaced: {problem.strerror}. Check whether it is a mount point (findmnt {path}) "
            f"or protected (lsattr {path})"
        ) from problem


def ask(names: Iterable[str]) -> dict[str, list[str]]:
    """Resolve each name like programs on this node; return {name: addresses}."""
    answers: dict[str, list[str]] = {}
    for name in names:
        with contextlib.suppress(OSError):
            found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            answers[name] = [str(entry[4][0]).partition("%")[0] for entry in found]
    return answers


def wanted_files(cluster: domain.HostsRequest, names: list[str]) -> list[dict[str, Any]]:
    """Return the files to change: path, before, after, reasons. Raises RefusedError for problems in lines that Muster
    did not write."""
    text = read(PATH)
    hosts = domain.rewrite(text, cluster, names)
    refuse([f"{PATH}, {problem}" for problem in hosts.problems])
    found = [{"path": PATH, "before": text, "after": hosts.text, "reasons": hosts.reasons}]
    if CLOUD.is_dir():
        drop_in = CLOUD / DROP_IN
        others = [CLOUD / "cloud.cfg", *sorted(path for path in drop_in.parent.glob("*.cfg") if path != drop_in)]
        wanted = domain.cloud_init_settings(
            "\n".join(text_of(INSTANCE / name) for name in INSTANCE_FILES), map(text_of, others)
        )
        reasons = ["cloud-init would overwrite the hosts file"]
        found.append({"path": drop_in, "before": read(drop_in), "after": wanted, "reasons": reasons})
    for template in [CLOUD / name for name in TEMPLATES if (CLOUD / name).exists()]:
        before = read(template)
        rewritten = domain.rewrite(before, cluster, names, template=True)
        reasons = [f"{template}: {reason}" for reason in rewritten.reasons]
        found.append({"path": template, "before": before, "after": rewritten.text, "reasons": reasons})
    return [file for file in found if file["before"] != file["after"]]


def differences(cluster: domain.HostsRequest) -> list[str]:
    """Return the differences in the files. If there are none, return wrong results of the resolver."""
    names = domain.own_names(read(PATH), cluster)
    reasons = [reason for file in wanted_files(cluster, names) for reason in file["reasons"]]
    return reasons or wrong_answers(cluster, names)


def readable(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def verify(cluster: domain.HostsRequest, names: list[str], fix: str) -> None:
    refuse((), wrong_answers(cluster, names), fix)


def wrong_answers(cluster: domain.HostsRequest, names: list[str]) -> list[str]:
    found: list[str] = domain.misled(cluster, names, ask([*names, *(name.lower() for name in cluster.addresses)]))
    return found


def provide(cluster: domain.HostsRequest, mode: str, *, check: bool) -> dict[str, Any]:
    """Write the names, except in check mode. With mode verify, only check the resolver."""
    if mode == "verify":
        names = domain.own_names(read(PATH) if not PATH.is_symlink() else "", cluster)
        verify(
            cluster,
            names,
            f"Run {playbook('site.yml', tags='network', cluster_hosts_mode='manage')}, or correct {PATH} manually",
        )
        return {"changed": False, "reasons": []}
    names = domain.own_names(read(PATH), cluster)
    wanted = wanted_files(cluster, names)
    if not check:
        for file in wanted:
            write(file["path"], file["after"])
        verify(
            cluster,
            names,
            f"{PATH} is correct, so check /etc/nsswitch.conf: in the line hosts:, files must come first",
        )
    return changed_files(wanted)


def forgotten_files(hostname: str) -> list[dict[str, Any]]:
    """Return the files from which to remove Muster's parts: path, before, after, reasons."""
    found: list[dict[str, Any]] = []
    for path in (PATH, *(CLOUD / name for name in TEMPLATES)):
        # Another tool writes a linked file, so it has no block.
        before = "" if path.is_symlink() else read(path)
        after = domain.forgotten(before, hostname, template=path != PATH)
        found.append({"path": path, "before": before, "after": after, "reasons": [f"{path} has Muster's block"]})
    drop_in = CLOUD / DROP_IN
    found.append({"path": drop_in, "before": read(drop_in), "after": "", "reasons": [f"{drop_in} belongs to Muster"]})
    return [file for file in found if file["before"] != file["after"]]


def forget(*, check: bool) -> dict[str, Any]:
    """Remove Muster's parts from the files, except in check mode."""
    unwanted = forgotten_files(socket.gethostname())
    for file in [] if check else unwanted:
        if file["path"] == CLOUD / DROP_IN:
            files.remove(str(file["path"]))
        else:
            write(file["path"], file["after"])
    return changed_files(unwanted)


def changed_files(wanted: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "changed": bool(wanted),
        "reasons": [reason for file in wanted for reason in file["reasons"]],
        "diff": [diff(str(file["path"]), readable(file["before"]), readable(file["after"])) for file in wanted],
    }
