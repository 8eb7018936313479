# The work is done on the controller, by plugins/action/onboard_verdict.py. This file documents it.

DOCUMENTATION = r"""
module: onboard_verdict
short_description: Fail when a node was not accepted
version_added: "0.2.0"
description:
  - So that the run ends with an error when one of several nodes is no member in the end.
options: {}
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: "The same: it changes nothing."}
  diff_mode: {support: none, description: It changes nothing.}
  platform: {support: full, platforms: posix}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Fail when a node was not accepted
  onboard_verdict:
"""

RETURN = r"""
msg: {description: Which nodes are members and which are not., type: str, returned: always}
"""
