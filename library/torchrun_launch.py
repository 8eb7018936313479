# The work is done on the controller, by plugins/action/torchrun_launch.py. This file documents it.

DOCUMENTATION = r"""
module: torchrun_launch
short_description: Run one torchrun job over all participants, watched and ended everywhere
version_added: "0.1.0"
description:
  - Computes the plan of a launch (every node's exact command and environment) from the inventory, with the defaults
    of the role C(cluster) applied.
  - Looks at every participant first, and starts nothing when one is missing or unfit; all reasons are given at once.
  - On each node the launch is a systemd unit of its own, run by the unprivileged C(cluster_user). It holds a lease
    that only this task renews, so that it ends within seconds when nobody watches it any more.
  - When a rank, an agent, a node or the controller fails, the launch is ended on every node. The verdict names the
    rank that failed first over all nodes, with its traceback.
  - The logs of all ranks come to the controller while the launch runs.
  - Contacts every participant by the connection that the inventory gives it; use it with C(run_once).
options:
  nodes:
    description: Nodes that take part, in the place of C(cluster_launch_nodes). Empty means those.
    type: list
    elements: str
    default: []
  first_nodes:
    description: Number of participants that take part, from the first one on. 0 means all of them.
    type: int
    default: 0
  nproc_per_node:
    description: Number of ranks on each of them. 0 means as many as C(cluster_nproc_per_node) says.
    type: int
    default: 0
  min_free_mb:
    description: Megabytes that must be free where the run directory will be.
    type: int
    default: 64
  show_rank:
    description: Rank whose output is shown as it comes. -1 means none; the logs hold all of it anyway.
    type: int
    default: -1
  run_as:
    description: Whose launch it is, as C(launch_as) of the role C(launch) has it. The role's default is V(auto).
    type: str
    choices: [auto, self, cluster_user]
    default: cluster_user
extends_documentation_fragment: [action_common_attributes, role_options.launch]
attributes:
  check_mode: {support: full, description: "Prints the plan, and contacts no node."}
  diff_mode: {support: none, description: A launch changes nothing that a diff could show.}
  idempotent:
    support: none
    description: "Every call is a launch of its own. Launches are not changes, so C(changed) is false."
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

- name: Train for two days at most, and do not wait
  torchrun_launch:
    script: /srv/project/train.py
    detached: true
    time_limit: 172800
  become: true
  run_once: true

- name: Watch it to its end
  torchrun_launch:
    attach: 20261121-093142-1df3
  become: true
  run_once: true

- name: End it
  torchrun_launch:
    stop: 20261121-093142-1df3
  become: true
  run_once: true

- name: Print every node's command and environment, and touch nothing
  torchrun_launch:
    script_src: train.py
  run_once: true
  check_mode: true
"""

RETURN = r"""
plan:
  description: The plan, as in C(plan.json), without the values of the environment.
  returned: always
  type: dict
verdict:
  description: "The verdict: C(status), C(summary) in one line, C(findings), C(coverage)."
  returned: after a launch
  type: dict
events:
  description: What the ranks reported with lines that begin with C(@muster).
  returned: after a launch
  type: list
  elements: dict
diagnosis:
  description: >-
    Why it failed, as in C(diagnosis.json): C(word) (confirmed, likely or unknown), C(lines) for people, C(causes) with
    their proofs, C(candidates), and what was ruled out (C(ruled_out)).
  returned: after a launch that failed, unless O(diagnose) is false
  type: dict
artifacts:
  description: Folder on the controller with C(plan.json), C(verdict.json) and C(logs/).
  returned: after a launch
  type: str
attempts:
  description: Of a launch with O(restarts), each attempt, with its nodes, how it ended, and the nodes that it named.
  returned: after a launch with restarts or checkpoints
  type: list
  elements: dict
timing:
  description: >-
    Controller times at which the launch began, silent nodes were spoken of (C(notices)), its end was noticed, and all
    nodes were clean.
  returned: after a launch
  type: dict
"""
