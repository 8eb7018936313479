# The work is done on the controller, by plugins/action/launch_jobs.py. This file documents it.

DOCUMENTATION = r"""
module: launch_jobs
short_description: List the launches of a cluster, or follow the output of one
version_added: "0.2.0"
description:
  - Asks every node which launches it has, in the system's manager of units and in users' own ones. So it does not
    matter from which controller they were begun.
  - Shows of each its id, its state, whose it is and who began it from where, its nodes, how busy its GPUs are, since
    when, and the last lines of what the head node's ranks wrote.
  - Who logs in as an administrator sees all of them. A launch user sees their own, and of others that they are there.
  - A node that does not answer is named, and hides nothing of the others. Nothing is changed, and no lease renewed.
  - Contacts every node by the connection that the inventory gives it; use it with C(run_once).
options:
  history:
    description: Whether launches that are over are shown, too, as far as nodes keep their logs (C(cluster_run_keep)).
    type: bool
    default: false
  newest:
    description: How many of each owner's launches that are over are looked at on a node.
    type: int
    default: 20
  lines:
    description: How many of the last lines are shown of each launch.
    type: int
    default: 2
  logs:
    description: Id of a launch whose output is shown as it comes, until it is over or somebody interrupts.
    type: str
    default: ""
  rank:
    description: The rank whose output is shown with O(logs). -1 means every rank's, and torchrun's own.
    type: int
    default: 0
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Does and returns the same as without it.}
  diff_mode: {support: none, description: "Changes nothing on a node, so there is nothing to show."}
  idempotent: {support: full, description: Changes nothing on a node.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Which launches there are
  launch_jobs:
  become: true
  run_once: true

- name: And which there were
  launch_jobs:
    history: true
  become: true
  run_once: true

- name: What all ranks of one write
  launch_jobs:
    logs: 20261121-093142-1df3
    rank: -1
  become: true
  run_once: true
"""

RETURN = r"""
jobs:
  description: >-
    Of each launch C(id), C(state) in words, C(user), C(own) (whether it is that user's own), and the C(nodes) that know
    it.
  returned: when they are listed
  type: list
  elements: dict
silent:
  description: By node that did not say, why.
  returned: when they are listed
  type: dict
over:
  description: Whether the launch was over when its output had been shown.
  returned: with O(logs)
  type: bool
"""
