#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Gets the packages that apt is about to install, each from the internet once for all nodes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: shared_debs
short_description: Get the packages that apt is about to install, each once for all nodes
description:
  - Goes before a task that installs the same O(packages) with apt. When it is done, their .deb files lie among apt's
    archives on the node.
  - Of the nodes at this task, one downloads a file, and the others fetch it from there over the ssh mesh. A node that
    comes later asks the first nodes of the inventory. Whoever gets nothing there downloads it, as apt would.
  - Each file is compared with the checksum in the node's own index, whose signature apt has verified. apt itself does
    not look again at what lies among its archives, but for the size.
  - The indexes are not shared. Every node fetches them, because apt must verify them there.
  - It never fails because of a peer, and leaves it to the task after it to say what apt cannot do.
version_added: "0.1.0"
author: The Muster authors
options:
  node:
    description: Name of the node in the inventory, for messages.
    type: str
    required: true
  packages:
    description: Packages as apt-get takes them, such as V(nvidia-open) or V(libnccl2=2.29.7-*).
    type: list
    elements: str
    required: true
  user:
    description: The user whom the ssh mesh lets in, C(cluster_user).
    type: str
    required: true
  recommends:
    description: Whether recommended packages are going to be installed as well.
    type: bool
    default: false
  step:
    description: What the controller's part of the module asks the node for; not for playbooks. Nor are the next two.
    type: str
    choices: [look, get]
    default: look
  peers:
    description: Nodes that may have the files.
    type: list
    elements: str
    default: []
  files:
    description: The files to fetch from them.
    type: list
    elements: dict
    default: []
    suboptions:
      name: {description: Its name., type: str, required: true}
      sha256: {description: What is in it., type: str, required: true}
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Nothing is done in check mode.}
  diff_mode: {support: none, description: The names of the files are in the result.}
  platform: {support: full, platforms: debian}
"""

EXAMPLES = r"""
- name: Get the packages, each once for all nodes
  shared_debs:
    node: "{{ inventory_hostname }}"
    user: "{{ cluster_user }}"
    packages: [libnccl2=2.29.7-1+cuda13.2, libnccl-dev=2.29.7-1+cuda13.2]
  become: true
"""

RETURN = r"""
downloaded: {description: Names of the files that were downloaded., type: list, elements: str, returned: always}
fetched: {description: Names of the files that came from a peer., type: list, elements: str, returned: always}
tried: {description: "Peers that were asked; see M(peer_files).", type: list, elements: dict, returned: always}
why: {description: What apt said where it could not; empty otherwise., type: str, returned: always}
"""

import os
import subprocess
from dataclasses import asdict
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.packages import debs as domain
from ansible.module_utils.muster.packages import peer_files as peer_domain
from ansible.module_utils.muster_node.packages import peer_files

ARCHIVES = "/var/cache/apt/archives"
# As the tasks have it that install: what is held by a role is moved by it.
INSTALL = ("install", "--yes", "--quiet=2", "--fix-broken", "--allow-downgrades", "--allow-change-held-packages")


def apt(params: dict[str, Any], *more: str) -> subprocess.CompletedProcess[str]:
    # Indexes have several checksums of a file, and apt-get prints one of them.
    options = ["--option=Acquire::ForceHash=SHA256", "--option=DPkg::Lock::Timeout=300"]
    options.append(f"--option=APT::Install-Recommends={'true' if params['recommends'] else 'false'}")
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    argv = ["apt-get", *options, *INSTALL, *more, "--", *params["packages"]]
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)


def needed(params: dict[str, Any]) -> tuple[list[domain.Deb], str]:
    """What apt would fetch now; what it says when it cannot install that at all."""
    done = apt(params, "--print-uris")
    if done.returncode:
        return [], " ".join(done.stderr.split())
    debs: list[domain.Deb] = domain.parse_uris(done.stdout)
    return debs, ""


def get(params: dict[str, Any]) -> dict[str, Any]:
    tried: list[Any] = []
    if params["files"] and params["peers"]:
        files = peer_domain.wanted_of(params["files"])
        _, tried = peer_files.fetch(params["user"], params["peers"], ARCHIVES, ARCHIVES, files)
    debs, why = needed(params)
    if debs:
        done = apt(params, "--download-only")
        if done.returncode:
            why = " ".join(done.stderr.split())
    fetched = [name for attempt in tried for name in attempt.fetched]
    downloaded = [] if why else [deb.name for deb in debs]
    return {
        "changed": bool(fetched or downloaded),
        "fetched": fetched,
        "downloaded": downloaded,
        "bytes": sum(deb.size for deb in debs) if downloaded else 0,
        "tried": [asdict(attempt) for attempt in tried],
        "why": why,
    }


def main() -> None:
    several = {"type": "list", "elements": "str"}
    file = {"name": {"type": "str", "required": True}, "sha256": {"type": "str", "required": True}}
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "packages": {**several, "required": True},
            "user": {"type": "str", "required": True},
            "recommends": {"type": "bool", "default": False},
            "step": {"type": "str", "choices": ["look", "get"], "default": "look"},
            "peers": {**several, "default": []},
            "files": {"type": "list", "elements": "dict", "options": file, "default": []},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        if params["step"] == "look":
            debs, why = needed(params)
            module.exit_json(changed=False, debs=[asdict(deb) for deb in debs], why=why)
        module.exit_json(**get(params))
    except (peer_domain.PeerFilesError, OSError) as problem:
        # Sharing saves time and bytes. What is missing, apt downloads.
        module.exit_json(changed=False, fetched=[], downloaded=[], tried=[], why=str(problem))


if __name__ == "__main__":
    main()
