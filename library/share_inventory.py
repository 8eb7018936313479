# The work is done on the controller, by plugins/action/share_inventory.py. This file documents it.

DOCUMENTATION = r"""
module: share_inventory
short_description: Write the inventory that people launch with
version_added: "0.2.0"
description:
  - Writes C(hosts.yml), C(known_hosts) and C(README.md) into a folder that works as the inventory of somebody else, on
    their own machine and from their own checkout of Muster.
  - It holds the nodes, how they are reached, their pinned host keys, and the values that a launch needs, worked out.
    Names, keys and passwords of the administrator are not in it, nor is anything else of the inventory.
  - Addresses, ports and jump hosts are those that the administrator's ssh comes to, so its own settings are not needed.
  - Runs on the controller and contacts no node. A node without a pinned host key is refused.
options:
  folder:
    description:
      - Where to. A relative path begins at the folder of ansible.cfg.
      - A folder is refused if other accounts can write on its path, or if it holds other files that Ansible may read.
    type: str
    required: true
  known_hosts:
    description: File in which the inventory's host keys are pinned.
    type: path
    required: true
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Prints what it would write.}
  diff_mode: {support: full}
  idempotent: {support: full, description: A second run changes nothing.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Write the folder
  share_inventory:
    folder: /srv/share/lab
    known_hosts: "{{ inventory_dir }}/known_hosts"
  run_once: true
"""

RETURN = r"""
folder:
  description: Where it is, on the controller.
  returned: success
  type: str
  sample: /srv/share/lab
"""
