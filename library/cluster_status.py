# The work is done on the controller, by plugins/action/cluster_status.py. This file documents it.

DOCUMENTATION = r"""
module: cluster_status
short_description: Show the state of a cluster on one screen
version_added: "0.2.0"
description:
  - Looks at every node, all side by side, by one program in one round trip, and shows which are ready, their ranks, who
    has which GPUs (a launch and its user, or a process or notebook outside of launches), versions and where they
    differ, who is quarantined and why. Beside it, of what earlier runs kept, the last smoke against the accepted state,
    the last health and the last drift.
  - A node that does not answer is a row like the others, and is waited for no longer than O(wait).
  - Logs in as the inventory says and needs no root. Where a launch runs on a node with GPUs on which nobody computes,
    only root sees whether it has them; it is asked then, and by nobody who launches for themselves (role launch_users).
    What was not looked at is said to be unknown.
  - The same as JSON is kept in C(artifacts/<cluster>/status.json).
options:
  watch:
    description: Whether the screen is shown anew until somebody interrupts. Ctrl-C then ends the run well.
    type: bool
    default: false
  seconds:
    description: From one screen to the next, with O(watch).
    type: float
    default: 5.0
  json:
    description: >-
      A file on the controller to write the JSON into, beside the one that is kept anyway; C(-) shows it instead of the
      screen, with O(watch) one line for each.
    type: str
    default: ""
  gate:
    description: >-
      Whether the task fails when a node is not ready. One that is quarantined is out by intention, and does not count.
    type: bool
    default: false
  wait:
    description: Seconds that a silent node is waited for after another one has answered.
    type: float
    default: 2.0
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Does and returns the same as without it.}
  diff_mode: {support: none, description: "Changes nothing on a node, so there is nothing to show."}
  idempotent: {support: full, description: Changes nothing on a node.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Show the state of the cluster
  cluster_status:
  become: true
  run_once: true

- name: Fail where a node is not ready
  cluster_status:
    gate: true
  become: true
  run_once: true
"""

RETURN = r"""
status:
  description: What the screen says, as docs/living_with_it.md has it.
  returned: always
  type: dict
closing:
  description: The last line in C(text), and in C(status) what colours it.
  returned: always
  type: dict
"""
