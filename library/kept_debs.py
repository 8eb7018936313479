#!/usr/bin/python
"""Keeps the .deb files of packages that are installed, so that they can be installed again."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kept_debs
short_description: Keep the files of packages that are about to be replaced
version_added: "0.2.0"
description:
  - Each file is copied from apt's cache, or downloaded. Files of other packages in the folder are removed.
  - Fails where a package is in neither, and names all such.
options:
  node: {description: The node's name for messages., type: str, required: true}
  folder: {description: "Where they are kept, a folder of root's.", type: path, required: true}
  packages:
    description: Packages as C(name=version).
    type: list
    elements: str
    required: true
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: none, description: It is used where something is changed alone.}
  diff_mode: {support: none, description: Names are what there is to show.}
  platform: {support: full, platforms: debian}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Keep the driver that is there
  kept_debs:
    node: "{{ inventory_hostname }}"
    folder: /var/lib/muster/driver_before
    packages: [libnvidia-compute=580.95.05-1ubuntu1]
"""

RETURN = r"""
bytes: {description: How much is kept., returned: success, type: int}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster_node.packages.debs import keep


def main() -> None:
    module = AnsibleModule(
        {
            "node": {"type": "str", "required": True},
            "folder": {"type": "path", "required": True},
            "packages": {"type": "list", "elements": "str", "required": True},
        },
    )
    result = keep(module.params)
    if missing := result.pop("missing"):
        where = f"{module.params['node']}: neither apt's cache nor a repository has {', '.join(missing)} any more"
        module.fail_json(msg=f"{where}, with which the node would go back. Its driver was not touched.")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
