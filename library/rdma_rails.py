# The work is done by plugins/action/rdma_rails.py, from the controller, on all nodes at once. This file documents it.

DOCUMENTATION = r"""
module: rdma_rails
short_description: Try every RDMA adapter against its counterpart on other nodes
version_added: "0.2.0"
description:
  - Has the adapters that NCCL would use (C(NCCL_IB_HCA)) talk to those of the same rail on other nodes with verbs,
    under the GID, partition and traffic class that NCCL would use, as the training user. First C(ibv_rc_pingpong),
    which compares what arrives; then C(ib_write_bw) and C(ib_write_lat) of perftest.
  - In rounds in which no node meets two others, so that no adapter is used twice at once. Of many nodes, each meets
    eight others. No round begins later than two minutes after the first.
  - For each other's set-up the tools listen on ports of firewall_launch_ports, at the training addresses, over TCP.
  - Names the adapter that most of its counterparts do not reach, the rail on which no pair works, or else the pair.
  - Contacts nobody where fewer than two nodes have such adapters, and leaves out nodes on which a job runs, each with
    the reason. Use it with C(run_once). A sick rail is a finding, and never fails the task.
options:
  plan:
    description: The registered result of M(health_plan).
    type: dict
    required: true
  looks:
    description: Name of the variable in which each node's result of M(nccl_health) is registered.
    type: str
    required: true
  user:
    description: Name of the training user, as whom the tools run.
    type: str
    required: true
  tried:
    description: Whether to try at all.
    type: bool
    default: true
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Does and returns the same as without it.}
  diff_mode: {support: none, description: "Changes nothing on a node, so there is nothing to show."}
  idempotent: {support: full, description: Changes nothing on a node.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Try every rail between two nodes
  rdma_rails:
    plan: "{{ __health_plan }}"
    looks: __health_look
    user: muster
  register: __health_rails
  run_once: true
"""

RETURN = r"""
rails:
  description:
    - One entry for every trial, as it is kept in C(rails.json); null is not measured.
  returned: always
  type: list
  elements: dict
  sample:
    - {from: "node1 mlx5_0:1", to: "node2 mlx5_0:1", outcome: ok, gbps: 391.2, usec: 2.05}
findings:
  description: Every finding.
  returned: always
  type: list
  elements: dict
verdict:
  description: What the findings add up to, and under C(coverage) what could not be looked at, and why.
  returned: always
  type: dict
"""
