# The work is done on the controller, by plugins/action/nvidia_driver_plan.py. This file documents it.

DOCUMENTATION = r"""
module: nvidia_driver_plan
short_description: Decide what NVIDIA's driver on a node needs
version_added: "0.1.0"
description:
  - Compares what M(node_inspect) saw with what M(gpu_stack_plan) resolved, and says what is to be done. A node whose
    driver is not ours to install is judged, by whether the driver works.
  - Fails the node, with sentences, when nothing may be done (a GPU is in use, a runfile's driver is there), or when
    what should be done by now is not. Contacts no node.
options:
  stage:
    description: >-
      How far the node is - C(look), before anything is done; C(settle), once the packages are there; C(installed), when
      all but a reboot is done; C(done).
    type: str
    choices: [look, settle, installed, done]
    default: look
  look: {description: Name of the variable in which M(node_inspect) was registered., type: str, required: true}
  stack: {description: What M(gpu_stack_plan) returned as C(stack)., type: dict, required: true}
  mode:
    description: Whether the driver is brought to what was resolved, or only judged.
    type: str
    choices: [manage, verify]
    required: true
  files:
    description: Files of ours.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: Where., type: str, required: true}
      content: {description: All of it., type: str, required: true}
      sources:
        description: Where the driver comes from when it is wanted. With any other it is taken away. Empty is any.
        type: list
        elements: str
        default: []
  reboots: {description: Whether the node may be rebooted., type: bool, default: true}
  removes_runfile: {description: Whether a driver that a runfile installed may be removed., type: bool, default: false}
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Says that it changes what would be changed.}
  diff_mode: {support: full, description: Shows what differs.}
  idempotent: {support: full, description: Changes nothing.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Decide what is to be done
  nvidia_driver_plan:
    look: __gpu_stack_look
    stack: "{{ __gpu_stack.stack }}"
    mode: manage
  register: __plan
"""

RETURN = r"""
needed: {description: Whether anything is to be done., returned: success, type: bool}
differences: {description: "What differs, one sentence each.", returned: success, type: list, elements: str}
plan:
  description: >-
    What is to be done. C(provide) says whether anything but a reboot is, and C(reboot) gives the reasons for one.
  returned: success
  type: dict
"""
