#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Fetches files from a peer over the ssh mesh."""

from __future__ import annotations

DOCUMENTATION = r"""
module: peer_files
short_description: Fetches files from other nodes, over the ssh mesh
version_added: "0.1.0"
description:
  - What N nodes need is downloaded by one of them. The others fetch it from there with this, so that only ssh between
    the nodes is needed, which every mode of the firewall allows.
  - The files are read on the peer by O(user) as whom the mesh logs in, with checked host keys and without a password,
    and land in a folder that is root's alone. Each is compared with its sha256 before it gets its name.
  - A peer that does not answer, or does not have the files, is no failure. The result says what is missing and why, and
    the caller gets it another way.
  - When every file is there already, nobody is asked.
author: The Muster authors
options:
  node:
    description: Name of the node in the inventory, for messages.
    type: str
    required: true
  user:
    description: The user whom the mesh lets in on the peers, C(cluster_user).
    type: str
    required: true
  peers:
    description: Nodes to ask, one after the other until nothing is missing.
    type: list
    elements: str
    required: true
  source:
    description: Folder on the peers that holds the files. The user must be able to read them there.
    type: path
    required: true
  target:
    description: Folder on this node. It is made when it is not there.
    type: path
    required: true
  files:
    description: The files.
    type: list
    elements: dict
    required: true
    suboptions:
      name: {description: Its name without any folder., type: str, required: true}
      sha256: {description: What is in it., type: str, required: true}
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode:
    support: full
    description: "In check mode nobody is asked, and what is not there counts as a change."
  diff_mode: {support: none, description: "The names of the fetched files are in the result."}
  platform: {support: full, platforms: posix}
"""

EXAMPLES = r"""
- name: Fetch the wheels that the head node has
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
complete: {description: Whether every file is there now., type: bool, returned: always}
missing: {description: Names of the files that are not., type: list, elements: str, returned: always}
fetched: {description: Names of the files that came., type: list, elements: str, returned: always}
tried:
  description: Each peer that was asked, in order.
  type: list
  elements: dict
  returned: always
  contains:
    peer: {description: Its name., type: str, returned: always}
    fetched: {description: What came from it., type: list, elements: str, returned: always}
    bytes: {description: Bytes that came from it., type: int, returned: always}
    why: {description: Why not everything came; empty when it did., type: str, returned: always}
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
