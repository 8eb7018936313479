# The work is done on the controller, by plugins/action/torchrun_launch.py. This file documents it.

DOCUMENTATION = r"""
module: torchrun_launch
short_description: Run and monitor one torchrun job on all participating nodes
version_added: "0.1.0"
description:
  - Computes the plan of a launch (command and environment of each node) from the inventory, with the defaults of the
    role C(cluster).
  - Checks all participating nodes first. If a node is missing or unfit, nothing is started and all reasons are reported
    at once.
  - On each node, the launch runs in a systemd unit as the unprivileged user C(cluster_user). The unit holds a lease
    that only this task renews. Without renewal, the unit stops within seconds.
  - If a rank, an agent, a node or the controller fails, the launch is stopped on all nodes. The verdict names the rank
    that failed first on any node, and contains its traceback.
  - The logs of all ranks are copied to the controller while the launch runs.
  - Contacts all participating nodes with the connection settings of the inventory. Use with C(run_once).
options:
  nodes:
    description: Names of the participating nodes. If empty, the nodes in C(cluster_launch_nodes) participate.
    type: list
    elements: str
    default: []
  first_nodes:
    description: Number of participating nodes to use, starting with the first. 0 means all participating nodes.
    type: int
    default: 0
  nproc_per_node:
    description: Number of ranks per node. 0 means C(cluster_nproc_per_node).
    type: int
    default: 0
  min_free_mb:
    description: Required free disk space in MB for the run directory.
    type: int
    default: 64
  show_rank:
    description: Rank whose output is shown live. -1 shows none. The logs contain the output of all ranks.
    type: int
    default: -1
  run_as:
    description: >-
      User that runs the launch, like C(launch_as) of the role C(launch). The default of C(launch_as) is V(auto).
    type: str
    choices: [auto, self, cluster_user]
    default: cluster_user
extends_documentation_fragment: [action_common_attributes, role_options.launch]
attributes:
  check_mode: {support: full, description: Prints the plan and contacts no node.}
  diff_mode: {support: none, description: A launch has no changes to show.}
  idempotent:
    support: none
    description: Each call is a new launch. Launches are not changes, so C(changed) is false.
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Train
  torchrun_launch:
    script: /srv/project/train.py
    script_args: [--epochs, "3"]
    env:
      NCCL_DEBUG: WARN
    env_file: ~/tokens.env
    chdir: /srv/project
    stall_timeout: 600
    show_rank: 0
  become: true
  run_once: true

- name: Train with accelerate
  torchrun_launch:
    command: [accelerate, launch, --mixed_precision=bf16]
    script_src: train.py
    script_args: [--epochs, "3"]
  become: true
  run_once: true

- name: Train for two days at most, detached
  torchrun_launch:
    script: /srv/project/train.py
    detached: true
    time_limit: 172800
  become: true
  run_once: true

- name: Watch the launch until it finishes
  torchrun_launch:
    attach: 20261121-093142-1df3
  become: true
  run_once: true

- name: Stop the launch
  torchrun_launch:
    stop: 20261121-093142-1df3
  become: true
  run_once: true

- name: Print the command and environment of each node without changes
  torchrun_launch:
    script_src: train.py
  run_once: true
  check_mode: true
"""

RETURN = r"""
plan:
  description: Plan as in C(plan.json), without the values of environment variables.
  returned: always
  type: dict
verdict:
  description: Verdict with C(status), C(summary) (one line), C(findings) and C(coverage).
  returned: after a launch
  type: dict
events:
  description: Events that the ranks reported in lines that start with C(@muster).
  returned: after a launch
  type: list
  elements: dict
diagnosis:
  description: >-
    Diagnosis as in C(diagnosis.json), with C(word) (confirmed, likely or unknown), C(lines) (text), C(causes) with
    evidence, C(candidates), and excluded causes (C(ruled_out)).
  returned: after a launch that failed, unless O(diagnose) is false
  type: dict
artifacts:
  description: Folder on the controller with C(plan.json), C(verdict.json) and C(logs/).
  returned: after a launch
  type: str
attempts:
  description: Attempts of a launch with O(restarts), each with its nodes, outcome and failed nodes.
  returned: after a launch with restarts or checkpoints
  type: list
  elements: dict
timing:
  description: >-
    Controller times of the start, of the reports of silent nodes (C(notices)), of the detected end, and of the cleanup
    of all nodes.
  returned: after a launch
  type: dict
"""
