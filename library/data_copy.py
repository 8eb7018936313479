#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Copies a folder of data to all nodes."""

from __future__ import annotations

# The work is done on the controller, by plugins/action/data_copy.py. This file documents it.

DOCUMENTATION = r"""
module: data_copy
short_description: Copy a folder of data to all nodes, once to one of them and then from node to node
version_added: "0.2.0"
description:
  - Compares the folder with what each node has, by the sha256 of each file. What nobody has is sent to one node; the
    others get it from there, in lines along which each gives on what it has got.
  - Each file is compared before it gets its name, and is root's, for everybody to read. Files that are whole are not
    sent again, so that a run that was cut off goes on.
  - What lies in the folder besides is never removed.
  - Digests are remembered, on the controller and on nodes, for as long as the kernel says that a file is the same.
  - Contacts all nodes of the play at once, so run it once.
options:
  src:
    description: A folder on the controller, or C(NODE:/path) for one that a node has.
    type: str
    required: true
  dest:
    description: The folder on every node. Only root may be able to write where it lies.
    type: str
    required: true
  verify:
    description: Copy nothing, but read all of it on all nodes, and fail where anything is not what it is at the source.
    type: bool
    default: false
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: "Says what each node lacks."}
  diff_mode: {support: none, description: "The files that a node lacks are on the screen."}
  idempotent: {support: full, description: What is there is not copied.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Have the images on all nodes
  data_copy:
    src: /data/cifar10
    dest: /data/cifar10
  become: true
  run_once: true
"""

RETURN = r"""
msg:
  description: How much was copied, how fast, and what was not.
  returned: always
  type: str
nodes:
  description: By node that lacked anything, C(bytes) and C(came), whom it got them from.
  returned: when something was copied
  type: dict
  sample: {node2: {bytes: 170498071, came: [node1]}}
wrong:
  description: By node, what is not what it is at the source.
  returned: with O(verify)
  type: dict
  sample: {node2: ["node2: /data/cifar10/train/7.bin was changed"]}
"""
