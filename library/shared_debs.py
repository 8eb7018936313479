#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Gets the packages that apt is about to install, each from the internet once for all nodes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: shared_debs
short_description: Get the packages that apt is about to install, each once for all nodes
version_added: "0.1.0"
description:
  - Goes before a task that installs the same O(packages) with apt, once for each O(step). When they are done, the
    packages' .deb files lie among apt's archives on the node.
  - Of the nodes that need a file, one downloads it, and the others fetch it from there over the ssh mesh. A node that
    comes later asks the first nodes of the inventory. Whoever gets nothing there downloads it, as apt would.
  - Each file is compared with the checksum in the node's own index, whose signature apt has verified. apt itself does
    not look again at what lies among its archives, but for the size.
  - The indexes are not shared. Every node fetches them, because apt must verify them there.
  - It never fails because of a peer, and leaves it to the task after it to say what apt cannot do.
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
    description:
      - V(look) finds out which files apt would fetch.
      - V(download) downloads, on the first node of the play that needs them, those that nobody else downloads.
      - V(get) fetches the others from there, and downloads what is still missing.
    type: str
    choices: [look, download, get]
    default: look
  looks:
    description: Name of the variable in which the look was registered, for the steps that follow it.
    type: str
    default: ""
  peers:
    description: Nodes that may have the files; set by the controller's part of the module, as the next one is.
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
      size: {description: Its bytes., type: int, required: true}
      sha256: {description: What is in it., type: str, required: true}
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Nothing is done in check mode.}
  diff_mode: {support: none, description: The names of the files are in the result.}
  platform: {support: full, platforms: debian}
"""

EXAMPLES = r"""
- name: Look which packages are to be downloaded
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

- name: Get the packages from there
  shared_debs:
    <<: *debs
    step: get
    looks: look
  become: true
  # Looks of one round are read by the nodes of that round alone.
  register: look
"""

RETURN = r"""
debs: {description: "The files that apt would fetch.", type: list, elements: dict, returned: by a look}
downloaded: {description: Files that were downloaded., type: list, elements: str, returned: after a look}
fetched: {description: Files that came from a peer., type: list, elements: str, returned: after a look}
tried: {description: "Peers that were asked; see M(peer_files).", type: list, elements: dict, returned: after a look}
why: {description: What apt said where it could not; empty otherwise., type: str, returned: always}
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
        # Sharing saves time and bytes. What is missing, apt downloads.
        module.exit_json(changed=False, fetched=[], downloaded=[], tried=[], debs=[], why=str(problem))


if __name__ == "__main__":
    main()
