#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Configures mirrors, proxies, certificates and the offline folder of a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: package_sources
short_description: Configure mirrors, proxies, CA certificates and the offline folder of a node
version_added: "0.1.0"
description:
  - Replaces the URLs of the distribution's own entries in apt source files with the URLs of a mirror. The original URLs
    are stored next to each file and restored when no mirror is requested.
  - Configures the proxies of apt, adds CA certificates to the system store, and restricts apt to the offline folder.
  - Reverts settings of earlier runs that are no longer requested. Third-party sources, keys and the signature checks of
    apt are never changed.
  - After a change, updates the package lists of the distribution. If the update fails, the module restores the previous
    state and fails.
author: The Muster authors
options:
  mode:
    description:
      - Mode of the module. V(manage) applies the differences.
      - V(verify) fails on differences.
    type: str
    choices: [manage, verify]
    default: manage
  table:
    description: Mirror table, in the format of C(roles/package_sources/files/mirrors.yml). Set by the action plugin.
    type: dict
    default: {}
  mirror:
    description: Name of the mirror. The action plugin reads options that are not set from the inventory.
    type: str
    default: upstream
  mirror_urls:
    description: URLs of the mirror V(custom).
    type: dict
    default: {}
  http_proxy:
    description: HTTP proxy URL.
    type: str
    default: ""
  https_proxy:
    description: HTTPS proxy URL.
    type: str
    default: ""
  no_proxy:
    description: Hosts to reach without a proxy. The addresses of the nodes are added.
    type: list
    elements: str
    default: []
  certificates:
    description: CA certificates in PEM format to add to the system store.
    type: list
    elements: str
    default: []
  offline_dir:
    description: Folder on the node that contains C(debs/). If set, apt uses only the packages in it. If empty, apt uses
      its configured sources.
    type: str
    default: ""
extends_documentation_fragment: [role_options.debian, action_common_attributes, role_options.node]
"""

EXAMPLES = r"""
- name: Configure the package sources from the inventory
  package_sources:
    node: "{{ inventory_hostname }}"
  become: true
"""

RETURN = r"""
differences: {description: "All differences, one sentence each.", returned: success, type: list, elements: str}
notes:
  description: Packages that the mirror does not provide, and the source used instead.
  returned: success
  type: list
  elements: str
left_out:
  description: Changes that are not possible yet, with the reason.
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
