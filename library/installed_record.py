# The work is done on the controller, by plugins/action/installed_record.py. This file documents it.

DOCUMENTATION = r"""
module: installed_record
short_description: Write down on each node what is installed there
version_added: "0.2.0"
description:
  - Writes down on each node of the play what is there now - kernel, boot, driver, GPUs, firmware, the versions of
    Muster's packages and the files of the environment - so that M(drift) can say later what has changed since.
  - No step decides by it. It is written only where it says something else, and is no change of the node's state.
  - Contacts every node by the connection that the inventory gives it; use it with C(run_once). A node that cannot be
    asked is a warning.
options:
  parts:
    description:
      - What alone is written down anew, such as C(environment). Empty for all, and where nothing was written down yet.
    type: list
    elements: str
    default: []
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Nothing is written.}
  diff_mode: {support: none, description: "It is no part of the node's state."}
  idempotent: {support: full, description: Reports no change.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Write down what is installed now
  installed_record:
  become: true
  run_once: true
"""

RETURN = r"""
written:
  description: The nodes on which it says something else than before.
  returned: always
  type: list
  elements: str
"""
