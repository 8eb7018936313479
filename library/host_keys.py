# The work is done on the controller, by plugins/action/host_keys.py. This file documents it.

DOCUMENTATION = r"""
module: host_keys
short_description: Compare the host keys of all nodes, and pin the new ones once they are confirmed
version_added: "0.1.0"
description:
  - Asks every node of the group C(gpu_nodes) in the play for its ssh host key, all at once, over the way that ssh
    itself would take (address, port, jump host, name of the key), and logs in on none.
  - Shows a table of fingerprints, asks once for all that are new, and pins them in O(known_hosts).
  - A key that is the one in the node's C(cluster_host_key) needs no question. One that is another is refused.
  - A key that differs from the one that was known is refused, and nothing of that node is pinned.
  - Runs on the controller. Nodes that do not answer do not stop the others.
options:
  known_hosts:
    description:
      - The project's file of host keys. Lines of others in it stay as they are.
      - Pinned lines of nodes that left the inventory are listed, with the command that removes them.
    type: path
    required: true
  confirmed:
    description: Whether the new keys are trusted without a question.
    type: bool
    default: false
  replace:
    description: Nodes whose key is known to have changed.
    type: list
    elements: str
    default: []
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: "In check mode the table is shown, nothing is asked, and nothing is pinned."}
  diff_mode: {support: full, description: Shows the lines that are pinned.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Compare and pin the nodes' host keys
  host_keys:
    known_hosts: "{{ inventory_dir }}/known_hosts"
  run_once: true
"""

RETURN = r"""
nodes:
  description: What was seen of each node, and what it means.
  returned: success
  type: list
  elements: dict
  sample:
    - node: node1
      address: 10.0.0.11:22
      type: ssh-ed25519
      fingerprint: SHA256:2uTuZyvNaYLXtuzmxSKdDCpYLM4tmrJOMn1vLVPbN1k
      state: new
      why: ""
"""
