# The work is done on the controller, by plugins/action/gpu_stack_plan.py. This file documents it.

DOCUMENTATION = r"""
module: gpu_stack_plan
short_description: Work out which driver, CUDA, NCCL and PyTorch fit each other on all nodes
version_added: "0.1.0"
description:
  - Reads the requests of the inventory (C(gpu_stack_*), C(cluster_torch_version), C(pytorch_variant)), and of
    every node C(cluster_gpus) and C(cluster_gpu_model), or what a look at it saw.
  - Gives one stack for all nodes, with one line of reason for each choice; or every reason why there is none, and the
    nearest that there is.
  - Contacts no node; use it with C(run_once). The table of what fits what is C(roles/gpu_stack/files/versions.yml).
options:
  looks:
    description: >-
      Name of the variable in which each node's M(node_inspect) was registered. Empty means that nobody looked. With a
      name, a node that was not looked at counts only when the inventory names its GPUs.
    type: str
    default: ""
  shows:
    description: >-
      What is shown - the whole C(stack), what becomes of each node's driver (C(drivers)), or C(nothing). Refusals
      always are.
    type: str
    choices: [stack, drivers, nothing]
    default: stack
  instead:
    description: Values of options of the cluster that are asked for in place of what the inventory has.
    type: dict
    default: {}
    suboptions:
      cluster_torch_version: {description: A release of PyTorch., type: str}
      gpu_stack_driver: {description: A branch or version of the driver., type: str}
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Does and returns the same as without it.}
  diff_mode: {support: none, description: "Changes nothing, so there is nothing to show."}
  idempotent: {support: full, description: Changes nothing.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Plan the GPU stack
  gpu_stack_plan:
  run_once: true
"""

RETURN = r"""
msg:
  description: The stack, with its reasons, or the refusals, for people.
  returned: when O(shows), or when something is refused
  type: str
stack:
  description: >-
    The same for programs. C(torch), C(variant), C(index), C(cuda), C(nccl), C(cudnn), C(branch), C(driver),
    C(warnings), and under C(nodes) each node's C(source), C(modules), C(build) and its lists of packages.
  returned: success
  type: dict
parts:
  description: The roles that have something to do or to judge on each node, in their order.
  returned: success
  type: dict
  sample: {"node1": ["nvidia_driver", "nccl"], "node2": []}
rdma:
  description: >-
    What each node is given for its RDMA adapter. C(source) (the distribution, DOCA, or kept), C(packages),
    C(modules), C(load), and C(why); C(refusals) where it cannot be had.
  returned: success
  type: dict
repositories:
  description: The package repositories that each node needs, as M(apt_repositories) takes them.
  returned: success
  type: dict
"""
