# The work is done on the controller, by plugins/action/onboard_partner.py. This file documents it.

DOCUMENTATION = r"""
module: onboard_partner
short_description: Choose an idle member for each new node
version_added: "0.2.0"
description:
  - Asks all members side by side who holds what a launch needs there, and who computes on their GPUs.
  - A member that cannot be asked, or of which that is not known, is not idle.
options:
  new:
    description: The new nodes.
    type: list
    elements: str
    required: true
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: "The same: it changes nothing."}
  diff_mode: {support: none, description: It changes nothing.}
  platform: {support: full, platforms: posix}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Look which members are idle
  onboard_partner:
    new: "{{ ansible_play_hosts }}"
  become: true
  run_once: true
"""

RETURN = r"""
pairs: {description: "By new node, the nodes of a launch of both.", type: dict, returned: success}
witness: {description: A member that answers. It may be at work., type: str, returned: success}
idle: {description: All idle members., type: list, elements: str, returned: success}
busy: {description: Why others are not idle., type: dict, returned: success}
onboarding: {description: What was left out., type: dict, returned: success}
"""
