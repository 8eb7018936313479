#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Configures apt repositories on a node, each with its verified signing key."""

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_repositories
short_description: Configure apt repositories with verified signing keys
version_added: "0.1.0"
description:
  - Writes the source, the key and the preferences of each repository and updates the package lists.
  - A downloaded key is accepted only if its fingerprint is in O(repositories[].fingerprints). If a repository is not
    signed with this key, the module removes the repository, so that apt on the node keeps working, and fails.
  - If a file that Muster did not write already configures a repository with the same URL, that entry is used unchanged.
author: The Muster authors
options:
  repositories:
    description: Repositories to configure.
    type: list
    elements: dict
    required: true
    suboptions:
      name: {description: "Name of the repository files, after the prefix C(muster-).", type: str, required: true}
      uri: {description: URL of the repository., type: str, default: ""}
      of_archive:
        description: >-
          Components of the distribution archive, instead of O(repositories[].uri). The URL is that of the node's
          sources.
        type: list
        elements: str
        default: []
      fingerprints: {description: Accepted fingerprints of the signing key., type: list, elements: str, default: []}
      label: {description: Expected label in the Release file of the repository., type: str, default: ""}
      priority: {description: apt pin priority of the packages. 0 keeps the default of apt., type: int, default: 0}
      key: {description: Signing key as text., type: str, default: ""}
      key_urls:
        description: URLs of the signing key. The first URL that responds is used.
        type: list
        elements: str
        default: []
  environment:
    description:
      - >-
        Environment variables for the key download. The default is the proxies from C(cluster_http_proxy) and
        C(cluster_https_proxy).
      - apt reads its proxies from its own configuration files.
    type: dict
    default: {}
extends_documentation_fragment: [action_common_attributes, role_options.node]
attributes:
  check_mode: {support: full, description: Reports the files to write. Keys are not downloaded.}
  diff_mode: {support: full}
  platform: {support: full, platforms: debian}
"""

EXAMPLES = r"""
- name: Add NVIDIA's repository
  apt_repositories:
    node: "{{ inventory_hostname }}"
    repositories:
      - name: nvidia
        uri: https://mirror.example.org/cuda/ubuntu2404/x86_64/
        key_urls: [https://mirror.example.org/cuda/ubuntu2404/x86_64/3bf863cc.pub]
        fingerprints: [EB693B3035CD5710E231E123A4B469963BF863CC]
"""

RETURN = r"""
changed: {description: Whether a file was written., returned: success, type: bool}
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster_node.packages.repositories import set_up
from ansible.module_utils.muster_node.tools.result import one_sentence
from ansible.module_utils.urls import open_url

KEY_SECONDS = 30

# The keys are public.
TEXT = {"type": "str", "default": "", "no_log": False}
SEVERAL = {"type": "list", "elements": "str", "default": [], "no_log": False}
REPOSITORY = {
    "name": {"type": "str", "required": True},
    "uri": {"type": "str", "default": ""},
    "priority": {"type": "int", "default": 0},
    **dict.fromkeys(("label", "key"), TEXT),
    **dict.fromkeys(("of_archive", "fingerprints", "key_urls"), SEVERAL),
}
SPEC = {
    "node": {"type": "str", "required": True},
    "repositories": {"type": "list", "elements": "dict", "required": True, "options": REPOSITORY},
    "environment": {"type": "dict", "default": {}},
}


def fetch(url: str) -> bytes:
    content: bytes = open_url(url, timeout=KEY_SECONDS).read()
    return content


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    os.environ.update(module.params["environment"])
    with one_sentence(module):
        module.exit_json(**set_up(module.params["repositories"], fetch, check=module.check_mode))


if __name__ == "__main__":
    main()
