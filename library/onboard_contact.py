# The work is done on the controller, by plugins/action/onboard_contact.py. This file documents it.

DOCUMENTATION = r"""
module: onboard_contact
short_description: Pin the host keys of new nodes, and look whether they can be taken on
version_added: "0.2.0"
description:
  - Asks all of them side by side for their host keys, shows the table of fingerprints, asks once, and pins what is
    new; see M(host_keys).
  - Then logs in on each, through a shell, and looks whether its Python is new enough and root can be had. It changes
    nothing there.
  - What keeps one of them out is one sentence, and does not stop the others. It fails when none is left.
options:
  nodes:
    description: The nodes, each with its C(name) and with C(variables) as the inventory is to have them.
    type: list
    elements: dict
    required: true
  known_hosts:
    description: The project's file of host keys. Empty means C(known_hosts) beside the inventory.
    type: str
    default: ""
  confirmed:
    description: Whether new host keys are trusted without a question.
    type: bool
    default: false
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: It pins nothing and logs in only where the key is pinned.}
  diff_mode: {support: full, description: Shows the lines that are pinned.}
  platform: {support: full, platforms: posix}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Pin their host keys, and look whether they can be logged in to
  onboard_contact:
    nodes: [{name: node9, variables: {ansible_host: 10.0.0.9}}]
  become: true
"""

RETURN = r"""
met:
  description:
    - Those that can be taken on. C(looked_at) is false where check mode kept it out, and C(by_password) says how it
      was logged in to.
  type: list
  elements: dict
  returned: success
nodes: {description: What was made of the host keys; see M(host_keys)., type: list, elements: dict, returned: success}
onboarding: {description: Why others cannot be taken on., type: dict, returned: success}
"""
