#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Fetches files from other nodes over the SSH mesh."""

from __future__ import annotations

DOCUMENTATION = r"""
module: peer_files
short_description: Fetch files from other nodes over SSH
version_added: "0.1.0"
description:
  - One node downloads the files that several nodes need. The other nodes fetch the files from that node with this
    module. The transfer uses SSH, which all firewall modes allow between nodes.
  - The module logs in to the peer as the SSH mesh user O(user), with verified host keys and without a password, reads
    the files there, and stores them in a folder owned by root. Each file is verified with its SHA-256 checksum before
    it is renamed to its final name.
  - The module does not fail if a peer does not respond or does not have the files. The result lists the missing files
    with reasons, so that the caller can use another source.
  - If all files are already present, no peer is contacted.
author: The Muster authors
options:
  user:
    description: User of the SSH mesh, C(cluster_user).
    type: str
    required: true
  peers:
    description: Nodes to contact, in this order, until no file is missing.
    type: list
    elements: str
    required: true
  source:
    description: Folder with the files on the peers. Must be readable by O(user).
    type: path
    required: true
  target:
    description: Folder on this node. Created if it does not exist.
    type: path
    required: true
  files:
    description: Files to fetch.
    type: list
    elements: dict
    required: true
    suboptions:
      name: {description: File name without a folder., type: str, required: true}
      sha256: {description: SHA-256 checksum of the file., type: str, required: true}
extends_documentation_fragment: [action_common_attributes, role_options.node]
attributes:
  check_mode:
    support: full
    description: No peer is contacted in check mode. Missing files are reported as a change.
  diff_mode: {support: none, description: There is no diff. The result contains the names of the fetched files.}
  platform: {support: full, platforms: posix}
"""

EXAMPLES = r"""
- name: Fetch the wheels from the head node
  peer_files:
    node: "{{ inventory_hostname }}"
    user: "{{ cluster_user }}"
    peers: "{{ groups['gpu_nodes'][:1] }}"
    source: /opt/muster/wheels
    target: /opt/muster/wheels
    files:
      - name: numpy-2.3.5-cp312-cp312-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl
        sha256: 0472f11f6ec23a74a906a00b48a4dcf3849209696dff7c189714511268d103ae
  become: true
  register: wheels
"""

RETURN = r"""
complete: {description: Whether all files are present., type: bool, returned: always}
missing: {description: Names of the missing files., type: list, elements: str, returned: always}
fetched: {description: Names of the fetched files., type: list, elements: str, returned: always}
tried:
  description: Contacted peers, in order.
  type: list
  elements: dict
  returned: always
  contains:
    peer: {description: Name of the peer., type: str, returned: always}
    fetched: {description: Files fetched from the peer., type: list, elements: str, returned: always}
    bytes: {description: Bytes fetched from the peer., type: int, returned: always}
    why: {description: Reason for missing files. Empty if all files were fetched., type: str, returned: always}
"""

import os
from dataclasses import asdict
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.packages import peer_files as domain
from ansible.module_utils.muster_node.packages import peer_files
from ansible.module_utils.muster_node.tools.result import one_sentence


def main() -> None:
    file = {"name": {"type": "str", "required": True}, "sha256": {"type": "str", "required": True}}
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "user": {"type": "str", "required": True},
            "peers": {"type": "list", "elements": "str", "required": True},
            "source": {"type": "path", "required": True},
            "target": {"type": "path", "required": True},
            "files": {"type": "list", "elements": "dict", "options": file, "required": True},
        },
        supports_check_mode=True,
    )
    params = module.params
    os.umask(0o022)
    with one_sentence(module, params["target"], (domain.PeerFilesError,)):
        files = domain.wanted_of(params["files"])
        if module.check_mode:
            missing = [file.name for file in files if not peer_files.is_there(Path(params["target"]), file)]
            module.exit_json(changed=bool(missing), complete=not missing, missing=missing, fetched=[], tried=[])
        missing, tried = peer_files.fetch(params["user"], params["peers"], params["source"], params["target"], files)
    fetched = [name for attempt in tried for name in attempt.fetched]
    module.exit_json(
        changed=bool(fetched),
        complete=not missing,
        missing=missing,
        fetched=fetched,
        tried=[asdict(attempt) for attempt in tried],
    )


if __name__ == "__main__":
    main()
