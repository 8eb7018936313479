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
  - If a rank, an agent, a node or the controller fails, the launch is stopped on all nodes. The verdict reports the
    rank that failed first across all nodes, with its traceback.
  - The logs of all ranks are copied to the controller while the launch runs.
  - Contacts all participating nodes with the connection settings of the inventory. Use with C(run_once).
options:
  script:
    description:
      - Path of the training script on all nodes. One of this option, O(script_src), O(module) and O(command) is
        required.
      - With O(project), relative paths start in the project folder.
    type: str
    default: ""
  environment:
    description: Name of the environment in C(cluster_environments) to run in. Empty means the default environment.
    type: str
    default: ""
  image:
    description:
      - Container image to run in, the same on all nodes. Either an archive on the controller (C(.tar), as written by
        C(podman save) or C(docker save)), or a name with a digest (C(NAME@sha256:...)) that the nodes pull.
      - The image must provide C(python3) (3.10 or newer) and PyTorch. Lease, limits, logs and user are the same as
        without an image.
      - Requires podman and crun on the nodes, and root. Not available for user launches.
    type: str
    default: ""
  image_folders:
    description:
      - Node folders to mount into the container at the same paths, in addition to the launch folders, O(chdir) and
        O(data). Requires O(image). Folders that users other than root could replace are rejected.
    type: list
    elements: str
    default: []
  script_src:
    description:
      - Path of a script on the controller that is copied to all nodes at the start.
      - A folder with a C(__main__.py) is also accepted, as in C(torchrun FOLDER). Its Python files, except hidden
        files, are sent as one archive (C(FOLDER.pyz)). Imports of modules and packages of the folder work unchanged.
      - The limit is 8 MB. Put larger programs on all nodes and use O(script).
    type: path
    default: ""
  project:
    description:
      - Folder on the controller to copy to all nodes before the start. Each launch has a separate read-only copy, which
        is verified on all nodes before a rank starts.
      - Copies all files that are tracked or not ignored by git, or all files if there is no git. Files that match
        C(.musterignore), C(.git), and files that look like secrets (C(.env), C(*.pem), C(id_ed25519) and similar) are
        excluded. A line with C(!) in C(.musterignore) includes them.
      - Only files that are missing on the nodes are transferred, from the controller to one node, and then from node to
        node over the training network.
      - C(MUSTER_PROJECT) and C(PYTHONPATH) contain the path of the copy. It is not the working directory of the ranks
        (O(chdir)).
    type: path
    default: ""
  project_max_mb:
    description: Maximum size of O(project) in MB. A larger project is rejected with a list of its largest files.
    type: int
    default: 100
  data:
    description:
      - Paths on the nodes that are compared before the start, as the training user. Folders are compared by the names
        and sizes of all files, files by content (above 64 MB by size).
    type: list
    elements: str
    default: []
  module:
    description: Python module to run instead of a script, as in C(torchrun -m) and C(python -m).
    type: str
    default: ""
  command:
    description:
      - Command to run on all nodes instead of C(torchrun), such as C([accelerate, launch, train.py]). The first word is
        searched in the C(bin) folder of the environment, then in C(PATH).
      - C(torchrun) and C(accelerate launch) receive the plan as options directly after these words. Other commands use
        the placeholders C({nnodes}), C({node_rank}), C({nproc}), C({world_size}), C({master_addr}), C({master_port}),
        C({local_addr}), C({launch_id}), C({log_dir}), C({timeout}) and C({project}), or the environment variables
        C(MUSTER_NODE_RANK) and so on. A C(torchrun) that they call reads C(PET_NODE_RANK) and so on.
      - O(script), O(script_src) or O(module) replaces C({script}), or is appended to the command, followed by
        O(script_args). A script with a relative path in the command is searched in O(project).
    type: list
    elements: str
    default: []
  script_args:
    description:
      - Arguments of the script. Do not pass secrets, because all users of the nodes can see arguments in the process
        list. Use O(env_file) for secrets.
    type: list
    elements: str
    default: []
  env:
    description:
      - Environment variables of the ranks. They are transferred in a file that only root and the training user can
        read. Plans, messages and artifacts contain only their names.
      - Values of variables with names like TOKEN, SECRET, PASSWORD or API_KEY are masked in logs.
    type: dict
    default: {}
  env_file:
    description:
      - File on the controller with environment variables that override O(env), as NAME=value lines, or as a YAML or
        JSON mapping, without expansion. The file must be a vault file or unreadable for other users.
      - Its values are masked in logs and messages, except numbers, common words and short values.
    type: path
    default: ""
  nodes:
    description: Participating nodes, instead of C(cluster_launch_nodes). Empty means C(cluster_launch_nodes).
    type: list
    elements: str
    default: []
  first_nodes:
    description: Number of participating nodes to use, starting with the first. 0 means all.
    type: int
    default: 0
  nproc_per_node:
    description: Number of ranks per node. 0 means C(cluster_nproc_per_node).
    type: int
    default: 0
  chdir:
    description: >-
      Working directory of the ranks, which must exist on all nodes. Empty creates a new directory and keeps it.
    type: path
    default: ""
  stall_timeout:
    description:
      - Time in seconds without output from any rank after which the launch is stopped as stalled. 0 disables the
        timeout.
      - O(rendezvous_timeout) is added until the first line of output.
    type: float
    default: 0.0
  rendezvous_timeout:
    description: Time in seconds that torchrun waits for the other nodes at the start.
    type: int
    default: 120
  stop_timeout:
    description: >-
      Time in seconds between SIGTERM and SIGKILL when a user or the time limit stops the launch. Only ranks receive
      this SIGTERM, so that data loaders and torchrun keep running while a checkpoint is written.
    type: int
    default: 30
  failure_timeout:
    description: >-
      Time in seconds between SIGTERM and SIGKILL for all processes of the unit, after a failure, after a lost lease,
      and after O(stop_timeout).
    type: int
    default: 5
  silence_timeout:
    description: >-
      Time in seconds without a response from a node after which an attached launch is stopped on all nodes. 0 means 9,
      and up to 15 with many nodes, which is also the minimum.
    type: float
    default: 0.0
  min_free_mb:
    description: Required free disk space in MB for the run directory.
    type: int
    default: 64
  log_max_mb:
    description:
      - Maximum size in MB per node of the stdout and stderr of each rank, and of the torchrun output. 0 means no limit.
      - Larger logs keep their beginning and end.
    type: int
    default: 256
  show_rank:
    description: Rank whose output is shown live. -1 shows none. The logs contain the output of all ranks.
    type: int
    default: -1
  detached:
    description:
      - Returns as soon as all ranks are running. The launch then has no lease and is limited by O(time_limit).
    type: bool
    default: false
  time_limit:
    description: Time in seconds after which the launch is stopped. 0 means no limit. Required with O(detached).
    type: int
    default: 0
  wait:
    description:
      - Waits while another launch or process uses the GPUs, processors or port that this launch needs. A waiting launch
        reserves nothing.
    type: bool
    default: false
  wait_timeout:
    description: Time in seconds after which a waiting launch gives up. 0 means never.
    type: float
    default: 0.0
  shared:
    description:
      - Allows the launch to share GPUs or processors with other processes. Requires a separate port.
    type: bool
    default: false
  restarts:
    description:
      - Number of restart attempts after a failure. Each attempt has a new id and port, the working directory of the
        first attempt, and C(MUSTER_ATTEMPT) in its environment. With O(checkpoints), C(MUSTER_CHECKPOINT) is also set.
      - The failed node is excluded and replaced by one of O(spares). Without a spare, O(min_nodes) allows fewer nodes.
        Otherwise, the node is used again if no fault was found.
      - A failure that would repeat is not retried. Examples are the same exception at the same place twice, and three
        attempts without a new checkpoint.
      - For a detached launch, a watcher on the head node starts the attempts in the systemd manager of the launch user.
        The watcher logs in to the other nodes as this user. If these logins fail, or if it is an administrator launch,
        the launch is rejected before the start.
    type: int
    default: 0
  spares:
    description: Nodes of gpu_nodes that replace failed nodes. They take no part until a node fails.
    type: list
    elements: str
    default: []
  min_nodes:
    description:
      - Minimum number of nodes for a restart attempt. Ranks are renumbered. 0 requires the original number of nodes.
    type: int
    default: 0
  checkpoints:
    description:
      - Glob of the checkpoints on the nodes, such as C(/data/run7/step-*). Relative paths start in the working
        directory of the launch. C(MUSTER_CHECKPOINT) of each attempt is the newest complete checkpoint.
      - Complete checkpoints are files of torch.save or safetensors that are not truncated, folders of
        torch.distributed.checkpoint with C(.metadata), other folders with complete files, and other non-empty files.
    type: str
    default: ""
  fetch:
    description:
      - Glob patterns of files in the working directories to copy to C(fetched/NODE/) next to the logs after the launch,
        even if it failed. C(**) matches any number of folders. Matching folders are copied recursively. Symbolic links
        are not followed.
      - Attaching to a detached launch fetches the patterns of the original launch.
    type: list
    elements: str
    default: []
  fetch_max_mb:
    description: >-
      Maximum total size in MB of the files fetched from all nodes. Files above the limit are listed and stay there.
    type: int
    default: 1000
  probe:
    description:
      - Tests the connections between all participating nodes before the start, with the addresses and the port of the
        launch.
      - If a connection fails, the launch is rejected and both ends are reported. The test takes about a second.
    type: bool
    default: true
  diagnose:
    description:
      - Diagnoses a failed launch immediately, before the nodes change. This takes up to 20 s, contacts the involved
        nodes again, and changes nothing.
    type: bool
    default: true
  observe:
    description:
      - Records the Python stack and the collectives of each rank, so that a diagnosis can report why a launch failed or
        which rank the others wait for. Loads a C(sitecustomize) in the ranks only, which also runs an existing
        C(sitecustomize).
    type: bool
    default: true
  notice_timeout:
    description:
      - Time in seconds without progress after which the rank that the others wait for is reported. 0 disables the
        notice. Nothing is stopped. If the launch had a long quiet phase before, three times that phase must pass.
      - Requires O(observe).
    type: float
    default: 180.0
  attach:
    description:
      - Id of a detached launch to watch until it finishes. Its logs are fetched completely.
      - A launch from another controller is found on its nodes, which store its plan.
      - Interrupting the task does not stop the launch.
    type: str
    default: ""
  stop:
    description: Id of a launch to stop on all of its nodes, started from any controller.
    type: str
    default: ""
  run_as:
    description:
      - Owner of the launch. V(cluster_user) is an administrator launch. Root starts it on the nodes as C(cluster_user).
      - V(self) is a user launch of the login user, who must be in the group C(muster-launch) on all nodes. It runs as
        this account in the user's systemd manager, without root, with its files in C(cluster_users_root).
      - V(auto) is V(self) if the login user is in this group and not root, and V(cluster_user) otherwise.
    type: str
    choices: [auto, self, cluster_user]
    default: cluster_user
extends_documentation_fragment: action_common_attributes
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
