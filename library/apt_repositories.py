#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Lets apt on a node know of package repositories, each with the key that it must be signed with."""

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_repositories
short_description: Let apt know of package repositories, each with the key that it must be signed with
version_added: "0.1.0"
description:
  - Writes the source, the key and the preferences of each repository, and has apt read its lists.
  - A key that is fetched must have one of the fingerprints that are given, wherever it comes from. A repository that is
    not signed with it is forgotten again, so that it stands in nothing else's way on the node, and the module fails.
  - A repository that the node has already, by somebody else's entry for the same address, is used as it is.
author: The Muster authors
options:
  node:
    description: Name of the node in the inventory, for messages.
    type: str
    required: true
  repositories:
    description: The repositories.
    type: list
    elements: dict
    required: true
    suboptions:
      name: {description: "Name of its files, after C(muster-).", type: str, required: true}
      uri: {description: Its address., type: str, default: ""}
      of_archive:
        description: >-
          Instead of O(repositories[].uri). Components of the distribution's own archive, wherever the node has that
          from.
        type: list
        elements: str
        default: []
      fingerprints: {description: Fingerprints that its key may have., type: list, elements: str, default: []}
      label: {description: Label that its packages carry., type: str, default: ""}
      priority: {description: "Priority of its packages; 0 leaves apt's own.", type: int, default: 0}
      key: {description: Text of its key., type: str, default: ""}
      key_urls:
        description: Where else its key is fetched from. The first that answers decides.
        type: list
        elements: str
        default: []
  environment:
    description:
      - Variables with which keys are fetched. Default, those of C(cluster_http_proxy) and C(cluster_https_proxy).
      - apt has its proxies in files of its own.
    type: dict
    default: {}
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Says which files it would write; no key is fetched.}
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

# The keys are public ones.
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
