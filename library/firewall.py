#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Keeps a node's firewall: peers, ssh and what the user lists come in, and nothing else."""

from __future__ import annotations

# The work is done on the controller, by plugins/action/firewall.py. This file documents it.

DOCUMENTATION = r"""
module: firewall
short_description: Lets in peers, ssh and what the user lists, and nothing else
version_added: "0.1.0"
description:
  - Allows ssh on the ports on which the node has it, every node of C(gpu_nodes) on the interface that carries training
    traffic, and O(allow). Everything else that comes in is denied; what goes out, and ICMP, is left as it is.
  - On a node with ufw, writes its own rules into ufw's files, all of them in one step, and loads them without a moment
    in which nothing protects the node or something is cut off. Rules of others and their order are kept.
  - On a node that has no ufw because something else is in force, keeps a table of its own in nftables.
  - Judges the outcome beforehand by walking the first packets of a launch and of ssh through all rules of the node.
    A rule of others that would block them is named, and nothing is changed.
  - A change is guarded by a timer on the node that undoes it. Only a new connection, made after it, stops the timer.
  - Names the listening services that a change cuts off from outside, and what container engines publish past it.
options:
  mode:
    description:
      - With V(manage) the firewall is changed where it differs.
      - With V(verify) nothing is changed. The task fails when something would block a launch, or is open that should
        not be.
      - With V(leave) all of ours goes, because the node leaves the cluster. ufw itself stays as it is; as long as it is
        on, so does the rule that lets ssh in.
    type: str
    choices: [manage, verify, leave]
    default: manage
extends_documentation_fragment: [action_common_attributes, role_options.firewall]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Keep the firewall, and let the monitoring in
  firewall:
    allow:
      - {port: 9100, from: [192.168.0.0/16], comment: node exporter}
  become: true

- name: Only say what would block a launch, and what is open
  firewall:
    mode: verify
  become: true
"""

RETURN = r"""
backend:
  description: What holds the rules, V(ufw) or V(nftables).
  returned: success
  type: str
packages:
  description: Packages that must be installed first. Nothing was changed when there are any.
  returned: success
  type: list
  elements: str
findings:
  description: What was concluded about what comes in, each with a stable C(id), a C(status), a C(summary) and a C(fix).
  returned: when the node could be looked at
  type: list
  elements: dict
msg:
  description: What is open that should not be, what is cut off and what is published past the firewall.
  returned: when there is something to say
  type: str
"""
