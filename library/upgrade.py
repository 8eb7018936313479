# The work is done on the controller, by plugins/action/upgrade.py. This file documents it.

DOCUMENTATION = r"""
module: upgrade
short_description: Decide which nodes change now, which later, and whether what changed is good
version_added: "0.2.0"
description:
  - Used once for each O(step), with C(run_once). Contacts all nodes at once, each by the connection that the inventory
    gives it, and only looks at them - who is at work there, which environment of PyTorch is in use, and which
    kernels there are.
  - What is changed on a node is the work of the roles that are included between the steps.
options:
  step:
    description:
      - V(look) looks at all nodes, and finds out what is asked for.
      - V(kernels) asks the apt of every node which security fixes its kernel is to have, and how it goes back.
      - V(drivers) finds out which nodes are to have another driver, and what of theirs is kept.
      - V(plan) says what changes where, and in which order. Fails where that cannot be.
      - V(turn) says which nodes of a batch nobody works on, and waits for them if that is asked for.
      - V(ready) fails where the node would not come up as it was with its newest kernel, and V(started) where it did
        not. They are for each node.
      - V(trials) says which launches are to try the batch.
      - V(good) says that the batch is good, and V(red) why it is not.
      - V(rest) looks at what has come of it, and says whether all nodes are to be tried together.
      - V(end) writes the inventory where all nodes have what was asked for; otherwise fails, and says what to type.
    type: str
    choices: [look, kernels, drivers, plan, turn, ready, started, trials, good, red, rest, end]
    required: true
  torch_version: {description: Release of PyTorch. Empty for no change of it., type: str, default: ""}
  driver: {description: Branch or version of the driver. Empty for no change of it., type: str, default: ""}
  kernel:
    description: V(security) for the newest security fixes of each node's kernel. Empty for no change of it.
    type: str
    default: ""
  rollback: {description: Whether the environments go back to those that were kept., type: bool, default: false}
  canary: {description: The node that is the first. Empty for the last one that is idle., type: str, default: ""}
  batch: {description: Nodes that change at a time. 0 for a quarter of them., type: int, default: 0}
  wait: {description: Seconds to wait for a node that somebody works on., type: int, default: 0}
  smoke:
    description: What the launches try that are made on nodes that have changed. V(none) launches nothing.
    type: str
    choices: [quick, full, none]
    default: quick
  look: {description: What O(step=look) returned., type: dict, default: {}}
  plan: {description: What O(step=plan) returned., type: dict, default: {}}
  gets: {description: What O(step=kernels) or O(step=drivers) returned., type: dict, default: {}}
  stack: {description: What M(gpu_stack_plan) has resolved for all nodes., type: dict, default: {}}
  looks: {description: Name of the variable in which M(node_inspect) was registered., type: str, default: ""}
  torch_looks: {description: Name of the variable in which M(pytorch_env) was registered., type: str, default: ""}
  why: {description: Why the batch is not good., type: str, default: ""}
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: "Looks and decides the same, and writes no inventory."}
  diff_mode: {support: full, description: Shows what changes in the inventory.}
  idempotent: {support: full, description: "Changes the inventory alone, where it says something else."}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Look at all nodes
  upgrade:
    step: look
    torch_version: 2.13.0
  become: true
  run_once: true
  register: __look
"""

RETURN = r"""
msg: {description: "What it comes to, for people.", returned: with some steps, type: str}
kind: {description: "What becomes another one, pytorch, driver or kernel.", returned: step is look, type: str}
nodes: {description: "What each node gets, by name.", returned: step is kernels or drivers, type: dict}
torch: {description: The release of PyTorch that nodes are to have., returned: step is look, type: str}
batches: {description: Nodes in the order in which they change., returned: step is plan, type: list, elements: list}
go: {description: Nodes of the batch that nobody works on., returned: step is turn, type: list, elements: str}
left: {description: Why each other node of the batch is left for later., returned: step is turn, type: dict}
red: {description: Why nothing more is changed., returned: step is turn or red, type: str}
launches: {description: The nodes of each launch., returned: step is trials or rest, type: list, elements: list}
"""
