# The work is done on the controller, by plugins/action/retire_nodes.py. This file documents it.

DOCUMENTATION = r"""
module: retire_nodes
short_description: Take nodes out of the cluster's inventory
version_added: "0.2.0"
description:
  - Takes nodes out of the inventory and out of the pinned host keys beside it. A YAML inventory keeps its comments,
    order and style; of another one the lines are printed that somebody has to change, and nothing is done.
  - Refuses while a launch with one of them runs, as all nodes say that answer. The nodes themselves need not answer.
  - A node that is in the inventory no more is no error, so that a run that was cut off is finished by running again.
  - What the other nodes know of it is forgotten by the roles C(cluster_hosts), C(ssh_mesh) and C(firewall).
  - Use it with C(run_once).
options:
  step:
    description: V(look) says whether they can leave, and which nodes do not answer. V(leave) takes them out.
    type: str
    choices: [look, leave]
    default: leave
  wipe:
    description: Whether Muster's own things were to be taken off them before; a node that does not answer is named.
    type: bool
    default: false
  wipe_driver:
    description: Whether the driver was to be taken off as well; it goes with Muster's own things alone.
    type: bool
    default: false
  nodes:
    description: Names of nodes.
    type: list
    elements: str
    default: []
  known_hosts:
    description: File in which the inventory's host keys are pinned.
    type: path
    required: true
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Shows what the files would be.}
  diff_mode: {support: full, description: Shows the files before and after.}
  idempotent: {support: full, description: A second run changes nothing.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Take a node out
  retire_nodes:
    nodes: [node7]
    known_hosts: "{{ inventory_dir }}/known_hosts"
  become: true
  run_once: true
"""

RETURN = r"""
outcome:
  description: What came of it, in one sentence.
  returned: step is leave
  type: str
unfinished:
  description: What holds for the other nodes until they have forgotten it, and the command for that.
  returned: step is leave
  type: str
silent:
  description: By node that did not say which launches it has, why.
  returned: success
  type: dict
"""
