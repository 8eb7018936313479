# The work is done on the controller, by plugins/action/fresh_login.py. This file documents it.

DOCUMENTATION = r"""
module: fresh_login
short_description: Prove that a node can be logged in on
version_added: "0.2.0"
description:
  - Logs in as the inventory says, by a connection that shares nothing with those that are open, becomes root there, and
    runs a program. Fails where that does not work.
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: "It changes nothing, and does the same."}
  diff_mode: {support: none}
  idempotent: {support: full, description: A second run changes nothing.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: See that the node can still be logged in on
  fresh_login:
  become: true
"""

RETURN = r"""
msg: {description: What came of it., returned: success, type: str}
"""
