#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Keeps the nodes' names in the hosts file of a node, and cloud-init from taking them out again."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hosts_file
short_description: The names of the cluster's nodes in a node's hosts file
description:
  - Keeps a block with the name and the cluster address of every node, and takes these names and the machine's own
    hostname off the lines of loopback addresses. Every other line is kept byte for byte.
  - A line outside the block that gives a node's name another address is not changed. The module fails and names it.
  - Where cloud-init is, it is made to leave the file alone. Its template gets the same block, because the user data
    of a provider outranks every setting on the machine.
  - Afterwards the node's resolver is asked for every name, and the module fails when an answer is wrong.
  - With no O(nodes) at all, the block is taken out, the machine's own names go back to C(127.0.1.1), and cloud-init is
    left to itself.
  - An action plugin of the same name fills in O(nodes) and O(own) from the inventory.
version_added: "0.1.0"
author: The Muster authors
options:
  nodes:
    description:
      - The nodes in the order of the inventory, each name with its address. Filled in from the inventory when it is
        not given.
    type: dict
    default: {}
  own:
    description: Name of this node in the inventory. Filled in from the inventory when it is not given.
    type: str
    default: ""
  mode:
    description:
      - With V(manage) the file is written when it differs.
      - With V(verify) only the resolver's answers are judged, and nothing is changed.
    type: str
    choices: [manage, verify]
    default: manage
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  platform: {support: full, platforms: posix}
"""

EXAMPLES = r"""
- name: Keep the nodes' names
  hosts_file:
  become: true

- name: Only look whether every name leads to the right address
  hosts_file:
    mode: verify
"""

RETURN = r"""
reasons:
  description: Why a file was written, or would be, one sentence each.
  returned: success
  type: list
  elements: str
  sample: ["line 2 gives node1 the loopback address 127.0.1.1"]
"""

import contextlib
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.network import hosts_file as domain
from ansible.module_utils.muster.verdict.commands import playbook
from ansible.module_utils.muster_node.tools import files
from ansible.module_utils.muster_node.tools.result import RefusedError, diff, one_sentence, refuse

if TYPE_CHECKING:
    from collections.abc import Iterable

PATH = Path("/etc/hosts")
# Settings of cloud-init. Nothing is done about it where they are missing.
CLOUD = Path("/etc/cloud")
# Read last, so that no other file of the folder outranks it.
DROP_IN = "cloud.cfg.d/99-muster-hosts.cfg"
# What the provider and the user ask for, as cloud-init keeps it of the present instance.
INSTANCE = Path("/var/lib/cloud/instance")
INSTANCE_FILES = ("vendor-cloud-config.txt", "vendor2-cloud-config.txt", "cloud-config.txt")
# cloud-init writes from that of the family, which is debian for Ubuntu too, and else from the plain one.
TEMPLATES = ("templates/hosts.debian.tmpl", "templates/hosts.tmpl")


def read(path: Path) -> str:
    """Return the file with every byte of it; empty when it is not there."""
    if path.is_symlink():
        raise RefusedError(
            f"{path} is a link to {path.readlink()}, so another tool writes it. "
            "Let that tool write the names, and set cluster_hosts_mode to verify, or replace the link by a file"
        )
    try:
        content: bytes = files.read(str(path))
    except FileNotFoundError:
        return ""
    except OSError as problem:
        raise RefusedError(f"{path} cannot be read: {problem.strerror}") from problem
    return content.decode("utf-8", "surrogateescape")


def text_of(path: Path) -> str:
    """Return what is only read to decide; empty when it cannot be."""
    return files.text(str(path), links=True) or ""


def write(path: Path, text: str) -> None:
    """Replace the file in one step, so that nobody ever reads half of it. Mode and owner stay."""
    try:
        files.replace(str(path), text.encode("utf-8", "surrogateescape"), mode=0o644, keep=True, parents=True)
    except OSError as problem:
        raise RefusedError(
            f"{path} cannot be replaced: {problem.strerror}. Look whether it is mounted over (findmnt {path}) "
            f"or protected (lsattr {path})"
        ) from problem


def ask(names: Iterable[str]) -> dict[str, list[str]]:
    """The addresses that any program on this node gets for each name."""
    answers: dict[str, list[str]] = {}
    for name in names:
        with contextlib.suppress(OSError):
            found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            answers[name] = [str(entry[4][0]).partition("%")[0] for entry in found]
    return answers


def wanted_files(cluster: domain.Cluster, names: list[str]) -> list[dict[str, Any]]:
    """Every file that differs from what it should be: path, before, after, reasons. Fails on what is not ours."""
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
        reasons = ["cloud-init does not leave the hosts file alone"]
        found.append({"path": drop_in, "before": read(drop_in), "after": wanted, "reasons": reasons})
    for template in [CLOUD / name for name in TEMPLATES if (CLOUD / name).exists()]:
        before = read(template)
        rewritten = domain.rewrite(before, cluster, names, template=True)
        reasons = [f"{template}: {reason}" for reason in rewritten.reasons]
        found.append({"path": template, "before": before, "after": rewritten.text, "reasons": reasons})
    return [file for file in found if file["before"] != file["after"]]


def forgotten_files(hostname: str) -> list[dict[str, Any]]:
    """Every file that still has something of ours: path, before, after, reasons."""
    found: list[dict[str, Any]] = []
    for path in (PATH, *(CLOUD / name for name in TEMPLATES)):
        # What is a link by now, another tool writes: nothing of ours is in it.
        before = "" if path.is_symlink() else read(path)
        after = domain.forgotten(before, hostname, template=path != PATH)
        found.append({"path": path, "before": before, "after": after, "reasons": [f"{path} has our block"]})
    drop_in = CLOUD / DROP_IN
    found.append({"path": drop_in, "before": read(drop_in), "after": "", "reasons": [f"{drop_in} is ours"]})
    return [file for file in found if file["before"] != file["after"]]


def forget(module: AnsibleModule) -> dict[str, Any]:
    unwanted = forgotten_files(socket.gethostname())
    for file in [] if module.check_mode else unwanted:
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


def readable(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def verify(cluster: domain.Cluster, names: list[str], fix: str) -> None:
    wrong = domain.misled(cluster, names, ask([*names, *(name.lower() for name in cluster.addresses)]))
    refuse((), wrong, fix)


def run(module: AnsibleModule, cluster: domain.Cluster) -> dict[str, Any]:
    if module.params["mode"] == "verify":
        names = domain.own_names(read(PATH) if not PATH.is_symlink() else "", cluster)
        verify(
            cluster,
            names,
            f"Run {playbook('site.yml', tags='network', cluster_hosts_mode='manage')}, "
            f"or put the right lines into {PATH} yourself",
        )
        return {"changed": False, "reasons": []}
    names = domain.own_names(read(PATH), cluster)
    wanted = wanted_files(cluster, names)
    if not module.check_mode:
        for file in wanted:
            write(file["path"], file["after"])
        verify(
            cluster,
            names,
            f"{PATH} says so: look at the line hosts: in /etc/nsswitch.conf, where files must come first",
        )
    return changed_files(wanted)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "nodes": {"type": "dict", "default": {}},
            "own": {"type": "str", "default": ""},
            "mode": {"type": "str", "choices": ["manage", "verify"], "default": "manage"},
        },
        supports_check_mode=True,
    )
    cluster = domain.Cluster(module.params["nodes"], module.params["own"], socket.gethostname())
    with one_sentence(module, node="own"):
        module.exit_json(**(run(module, cluster) if cluster.addresses else forget(module)))


if __name__ == "__main__":
    main()
