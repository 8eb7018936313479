#!/usr/bin/python
"""Keeps the .deb files of installed packages, so that the same versions can be installed again."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kept_debs
short_description: Keep the .deb files of packages that will be replaced
version_added: "0.2.0"
description:
  - Copies the .deb files from the apt cache, or downloads them. Removes files of other packages from the folder.
  - Fails and lists the packages that are neither in the cache nor available for download.
options:
  node: {description: "Name of the node, used in messages.", type: str, required: true}
  folder: {description: "Folder for the package files, owned by root.", type: path, required: true}
  packages:
    description: Packages to keep, as C(name=version).
    type: list
    elements: str
    required: true
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: none, description: Used only for changes.}
  diff_mode: {support: none, description: Only file names could be shown.}
  platform: {support: full, platforms: debian}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Keep the packages of the installed driver
  kept_debs:
    node: "{{ inventory_hostname }}"
    folder: /var/lib/muster/driver_before
    packages: [libnvidia-compute=580.95.05-1ubuntu1]
"""

RETURN = r"""
bytes: {description: Total size of the kept files., returned: success, type: int}
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
        where = f"{module.params['node']}: not found in apt's cache or in a repository: {', '.join(missing)}"
        module.fail_json(msg=f"{where}. These packages are needed for a rollback, so the driver was not changed.")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
