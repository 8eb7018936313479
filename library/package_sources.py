#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Mirrors, proxies, certificates and the offline folder of a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: package_sources
short_description: Mirrors, proxies, certificates and the offline folder that a node takes packages with
version_added: "0.1.0"
description:
  - Points the distribution's own entries, in its own source files, at a mirror. Only their addresses change. What they
    were is kept beside each file, and given back when no mirror is requested any more.
  - Tells apt of the proxies, adds certificates to those that the system trusts, and lets apt know of one folder alone.
  - What is not requested and was written by an earlier run is taken back. The sources of others, keys, and what apt
    demands of signatures are never touched.
  - After a change apt reads the distribution's lists. When it cannot, the node is left as it was, and the module fails.
author: The Muster authors
options:
  node:
    description: Name of the node in the inventory, for messages.
    type: str
    required: true
  mode:
    description:
      - With V(manage) what differs is changed.
      - With V(verify) the module fails when anything differs.
    type: str
    choices: [manage, verify]
    default: manage
  table:
    description: The mirrors, as in C(roles/package_sources/files/mirrors.yml). Filled in by the action plugin.
    type: dict
    default: {}
  mirror:
    description:
      - Name of the mirror. Where a task does not give it, the action plugin fills in what the inventory requests, here
        and in all that follow.
    type: str
    default: upstream
  mirror_urls:
    description: Addresses of the mirror V(custom).
    type: dict
    default: {}
  http_proxy:
    description: Proxy for http.
    type: str
    default: ""
  https_proxy:
    description: Proxy for https.
    type: str
    default: ""
  no_proxy:
    description: Hosts that are reached without it. The nodes' own addresses are added.
    type: list
    elements: str
    default: []
  certificates:
    description: Certificates in PEM to be trusted besides the system's.
    type: list
    elements: str
    default: []
  offline_dir:
    description: Folder on the node with C(debs/). Without any, apt asks its sources.
    type: str
    default: ""
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  platform: {support: full, platforms: debian}
"""

EXAMPLES = r"""
- name: Set the node's package sources up as the inventory requests
  package_sources:
    node: "{{ inventory_hostname }}"
  become: true
"""

RETURN = r"""
differences:
  description: Every difference, one sentence each.
  returned: success
  type: list
  elements: str
notes:
  description: What the mirror lacks, and where it is taken from instead.
  returned: success
  type: list
  elements: str
left_out:
  description: What cannot be done yet, and why.
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.packages import mirrors
from ansible.module_utils.muster_node.packages.sources import set_up
from ansible.module_utils.muster_node.tools.result import one_sentence

SEVERAL = {"type": "list", "elements": "str", "default": []}
SPEC = {
    "node": {"type": "str", "required": True},
    "mode": {"type": "str", "choices": ["manage", "verify"], "default": "manage"},
    "table": {"type": "dict", "default": {}},
    "mirror": {"type": "str", "default": mirrors.UPSTREAM},
    "mirror_urls": {"type": "dict", "default": {}},
    "http_proxy": {"type": "str", "default": ""},
    "https_proxy": {"type": "str", "default": ""},
    "no_proxy": SEVERAL,
    "certificates": SEVERAL,
    "offline_dir": {"type": "str", "default": ""},
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    with one_sentence(module, refusals=(mirrors.MirrorError,)):
        module.exit_json(**set_up(module.params, check=module.check_mode))


if __name__ == "__main__":
    main()
