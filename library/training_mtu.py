#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Keeps the MTU of the interface that carries training traffic."""

from __future__ import annotations

# The work is done on the controller, by plugins/action/training_mtu.py. This file documents it.

DOCUMENTATION = r"""
module: training_mtu
short_description: Sets the MTU of the training interface, and tries it between the nodes
version_added: "0.2.0"
description:
  - In three steps, for every node has to be set before a packet of that size can go from one to another.
  - With O(step=set) the MTU is set, and written for the next start; a timer on the node then undoes it.
  - With O(step=try) packets of full size, which nobody may divide, are sent to other nodes.
  - With O(step=settle) the change stays where all of them arrived and a new connection can be made; else the node gets
    back what it had, and the task fails with the reason.
options:
  step:
    description: Which of the three.
    type: str
    choices: [set, try, settle]
    default: set
  mtu:
    description: The MTU.
    type: int
    required: true
  mode:
    description: With V(verify) nothing is changed, and the task fails where something differs.
    type: str
    choices: [manage, verify]
    default: manage
  confirm_seconds:
    description: Seconds after which a node undoes a change that nobody has confirmed.
    type: int
    default: 120
  changes:
    description: Name of the variable in which each node's first step is registered.
    type: str
    default: ""
  paths:
    description: Name of the variable in which each node's second step is registered.
    type: str
    default: ""
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  platform: {support: full, platforms: debian}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Set the MTU
  training_mtu:
    mtu: 9000
  register: __mtu
"""

RETURN = r"""
interface:
  description: The training interface.
  returned: with O(step=set)
  type: str
before:
  description: The MTU that it had.
  returned: with O(step=set)
  type: int
paths:
  description: For each peer that was tried, whether a small packet and one of full size came back.
  returned: with O(step=try)
  type: dict
"""
