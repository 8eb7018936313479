# The work is done on the controller, by plugins/action/onboard_inventory.py. This file documents it.

DOCUMENTATION = r"""
module: onboard_inventory
short_description: Write nodes that are being onboarded into the inventory
version_added: "0.2.0"
description:
  - Lists new nodes at the end of C(gpu_nodes), quarantined, in the YAML files of the inventory, and keeps comments and
    order.
  - Lifts the quarantine of those that were accepted, and looks up which node rank they have then.
  - Where the inventory is of another kind, the lines to write are shown.
options:
  nodes:
    description: The nodes, each with its C(name) and with C(variables) as the inventory is to have them.
    type: list
    elements: dict
    default: []
  names:
    description: The nodes whose quarantine is lifted.
    type: list
    elements: str
    default: []
  state:
    description: Whether they are listed and quarantined, or members from now on.
    type: str
    choices: [quarantined, member]
    required: true
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: "Shows what it would write."}
  diff_mode: {support: full, description: Shows the lines.}
  platform: {support: full, platforms: posix}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Lift the quarantine of what is sound
  onboard_inventory:
    names: [node9]
    state: member
  run_once: true
"""

RETURN = r"""
onboarding: {description: "Of each node, whether it is written, and its node rank.", type: dict, returned: success}
"""
