#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Manages a node's firewall: allows cluster nodes, SSH and listed ports, and denies everything else."""

from __future__ import annotations

# The work is done on the controller, by plugins/action/firewall.py. This file documents it.

DOCUMENTATION = r"""
module: firewall
short_description: Firewall (enables ufw, default deny) that allows cluster nodes, SSH and listed ports
version_added: "0.1.0"
description:
  - Allows SSH on the ports of the node's sshd, all nodes of C(gpu_nodes) on the training interface, and O(allow). All
    other incoming traffic is denied. Outgoing traffic and ICMP are not changed.
  - On a node with ufw, writes all rules to ufw's files and loads them atomically, so that neither protection nor
    connections are interrupted. Existing rules and their order are kept.
  - On a node without ufw but with another active firewall, manages a separate table in nftables.
  - Before a change, simulates how all rules of the node treat the first packets of a launch and of SSH. If an existing
    rule blocks these packets, the module reports the rule and changes nothing.
  - Changes nothing while the firewall would block a service that other hosts can reach and that is neither in O(allow)
    nor in O(cut).
  - Before the first change, records the state of the firewall on the node. V(leave) restores the recorded state of ufw.
  - A timer on the node reverts each change unless a new connection confirms the change.
  - Reports listening services that become unreachable from outside, and container ports that bypass the firewall.
options:
  mode:
    description:
      - Mode of the module. V(manage) applies the differences.
      - V(verify) changes nothing and fails if rules block a launch or leave unwanted ports open.
      - V(leave) removes Muster's rules when the node leaves the cluster, except the SSH rule while ufw is active.
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
- name: Manage the firewall and allow node_exporter
  firewall:
    allow:
      - {port: 9100, from: [192.168.0.0/16], comment: node exporter}
  become: true

- name: Only check for blocked launches and unwanted open ports
  firewall:
    mode: verify
  become: true
"""

RETURN = r"""
backend: {description: "Firewall that holds the rules, V(ufw) or V(nftables).", returned: success, type: str}
packages:
  description: Packages to install first. If there are any, nothing was changed.
  returned: success
  type: list
  elements: str
findings:
  description: Results for incoming traffic, each with a stable C(id), a C(status), a C(summary) and a C(fix).
  returned: when the node could be checked
  type: list
  elements: dict
msg:
  description: Unwanted open ports, unreachable services, and ports published past the firewall.
  returned: when there are warnings
  type: str
"""
