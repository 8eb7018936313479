#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Downloads the packages that apt will install, each only once for all nodes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: shared_debs
short_description: Download packages for apt once for all nodes
version_added: "0.1.0"
description:
  - Use the module once per O(step), before a task that installs the same O(packages) with apt. Afterwards, the .deb
    files of the packages are in the apt cache of the node.
  - One node downloads a file and the other nodes fetch it over the SSH mesh. A node that is added later tries the first
    nodes of the inventory first. If a node cannot fetch a file, the node downloads the file as apt would.
  - Each file is verified with the checksum in the node's package index, whose signature apt has verified. This is
    necessary because apt checks only the size of files in its cache.
  - Package indexes are not shared. Each node downloads them, because apt must verify their signature.
  - Errors of a peer never fail the task. The task that installs the packages reports errors of apt.
author: The Muster authors
options:
  packages:
    description: Packages as passed to apt-get, such as V(nvidia-open) or V(libnccl2=2.29.7-*).
    type: list
    elements: str
    required: true
  user:
    description: User of the SSH mesh, C(cluster_user).
    type: str
    required: true
  recommends:
    description: Whether apt will also install recommended packages.
    type: bool
    default: false
  step:
    description:
      - Step to run. V(look) lists the files that apt would download.
      - V(download) downloads each file on one node, the first node of the play that needs the file.
      - V(get) fetches the files from other nodes and downloads missing files.
    type: str
    choices: [look, download, get]
    default: look
  looks:
    description: Name of the variable with the registered result of the V(look) step.
    type: str
    default: ""
  peers:
    description: Nodes that might have the files. The action plugin sets this option and O(files).
    type: list
    elements: str
    default: []
  files:
    description: Files to fetch from O(peers).
    type: list
    elements: dict
    default: []
    suboptions:
      name: {description: File name., type: str, required: true}
      size: {description: Size in bytes., type: int, required: true}
      sha256: {description: SHA-256 checksum., type: str, required: true}
extends_documentation_fragment: [action_common_attributes, role_options.node]
attributes:
  check_mode: {support: full, description: Nothing is done in check mode.}
  diff_mode: {support: none, description: There is no diff. The result contains the file names.}
  platform: {support: full, platforms: debian}
"""

EXAMPLES = r"""
- name: List the packages to download
  shared_debs: &debs
    node: "{{ inventory_hostname }}"
    user: "{{ cluster_user }}"
    packages: [libnccl2=2.29.7-1+cuda13.2, libnccl-dev=2.29.7-1+cuda13.2]
  become: true
  register: look

- name: Download each package on one node
  shared_debs:
    <<: *debs
    step: download
    looks: look
  become: true

- name: Fetch the packages from this node
  shared_debs:
    <<: *debs
    step: get
    looks: look
  become: true
  # The nodes of the next batch must not read the results of this batch.
  register: look
"""

RETURN = r"""
debs: {description: Files that apt would download., type: list, elements: dict, returned: step is look}
downloaded: {description: Downloaded files., type: list, elements: str, returned: step is not look}
fetched: {description: Files fetched from a peer., type: list, elements: str, returned: step is not look}
tried:
  description: Contacted peers, in the format of M(peer_files).
  type: list
  elements: dict
  returned: step is not look
why: {description: Error message of apt. Empty if there was no error., type: str, returned: always}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.packages.peer_files import PeerFilesError
from ansible.module_utils.muster_node.packages import debs

SEVERAL = {"type": "list", "elements": "str"}
FILE = {
    "name": {"type": "str", "required": True},
    "size": {"type": "int", "required": True},
    "sha256": {"type": "str", "required": True},
}
SPEC = {
    "node": {"type": "str", "required": True},
    "packages": {**SEVERAL, "required": True},
    "user": {"type": "str", "required": True},
    "recommends": {"type": "bool", "default": False},
    "step": {"type": "str", "choices": ["look", "download", "get"], "default": "look"},
    "looks": {"type": "str", "default": ""},
    "peers": {**SEVERAL, "default": []},
    "files": {"type": "list", "elements": "dict", "options": FILE, "default": []},
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        work = debs.look if module.params["step"] == "look" else debs.get
        module.exit_json(**work(module.params))
    except (PeerFilesError, OSError) as problem:
        # Sharing is only an optimization. apt downloads missing files.
        module.exit_json(changed=False, fetched=[], downloaded=[], tried=[], debs=[], why=str(problem))


if __name__ == "__main__":
    main()
