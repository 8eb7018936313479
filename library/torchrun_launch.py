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
  script:
    description:
      - Path of the training script, which is there on every node. One of this, O(script_src), O(module) and O(command)
        is needed.
      - With O(project), a path that does not begin with a slash is within the project.
    type: str
    default: ""
  environment:
    description: Name of the environment of C(cluster_environments) that it runs in. Empty means the default one.
    type: str
    default: ""
  image:
    description:
      - Container image that it runs in, the same on every participant - an archive on the controller (C(.tar), as
        C(podman save) and C(docker save) write it), or a name with a digest (C(NAME@sha256:...)), which the nodes pull.
      - The image brings C(python3) (3.10 or newer) and PyTorch. Lease, limits, logs and the user are as without it.
      - It takes podman and crun on the nodes, and root; not for somebody's own launch.
    type: str
    default: ""
  image_folders:
    description:
      - With O(image), folders of the nodes that the container shows at the same paths, beside the launch's own ones,
        O(chdir) and O(data). What others than root may exchange for something else is refused.
    type: list
    elements: str
    default: []
  script_src:
    description:
      - Path of a script on the controller that is sent to every node with the start.
      - It may be a folder with a C(__main__.py), as C(torchrun FOLDER) takes it. Its Python files, but for hidden ones,
        are sent as one file (C(FOLDER.pyz)), which imports modules and packages of the folder by their names there.
      - At most 8 MB are sent. What is larger belongs on every node (O(script)).
    type: path
    default: ""
  project:
    description:
      - Folder on the controller whose files every node gets before the start. Each launch has a copy of its own, which
        nobody can change, and which is compared with what was sent on every node before a rank begins.
      - Sent is what git tracks there or has not been told to ignore; where there is no git, every file. What lines of
        C(.musterignore) name is not, nor C(.git) and what looks like a secret (C(.env), C(*.pem), C(id_ed25519) and the
        like) unless a line with a C(!) includes it.
      - Only what a node does not have yet travels, to one node from the controller, and from node to node over the
        training network.
      - The ranks find it in C(MUSTER_PROJECT), and in C(PYTHONPATH). Their working directory is another one (O(chdir)).
    type: path
    default: ""
  project_max_mb:
    description: Megabytes that O(project) may have. A larger one is refused, with its largest files.
    type: int
    default: 100
  data:
    description:
      - Paths on the nodes that are compared before the start, as the training user - folders by the names and sizes of
        all that is in them, files by their content, those of more than 64 MB by their size.
    type: list
    elements: str
    default: []
  module:
    description: Module to be run in the script's place, as C(torchrun -m) and C(python -m) take it.
    type: str
    default: ""
  command:
    description:
      - Command to be run on every node in C(torchrun)'s place, such as C([accelerate, launch, train.py]). Its first
        word is looked for in the environment's C(bin), then in C(PATH).
      - C(torchrun) and C(accelerate launch) get the plan in their own options, which come right behind those words.
        Any other command gets it by placeholders - C({nnodes}), C({node_rank}), C({nproc}), C({world_size}),
        C({master_addr}), C({master_port}), C({local_addr}), C({launch_id}), C({log_dir}), C({timeout}), C({project}) -
        and in its environment, as C(MUSTER_NODE_RANK) and so on, and for a C(torchrun) that it calls as
        C(PET_NODE_RANK) and so on.
      - O(script), O(script_src) or O(module) take the place of C({script}), or come behind the command. O(script_args)
        come last. A script that the command names by a relative path is looked for in O(project).
    type: list
    elements: str
    default: []
  script_args:
    description:
      - Arguments of the script. Every user of the nodes sees them in the list of processes, so that a secret does not
        belong there but into O(env_file).
    type: list
    elements: str
    default: []
  env:
    description:
      - Environment variables of the ranks. They travel in a file that only root and the training user read, and of them
        plans, messages and artifacts hold the names alone.
      - Values of names that look like secrets (TOKEN, SECRET, PASSWORD, API_KEY) are covered in logs, too.
    type: dict
    default: {}
  env_file:
    description:
      - File on the controller with more of them, which come before those of O(env) - lines NAME=value, or a mapping in
        YAML or JSON, taken as they are written. It may be a vault file; any other must not be readable by other users.
      - Its values are covered wherever they turn up in logs and messages, but for numbers, words and what is short.
    type: path
    default: ""
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
  chdir:
    description: Working directory of the ranks, there on every node. Default, a new one of the launch, which is kept.
    type: path
    default: ""
  stall_timeout:
    description:
      - Seconds without a line from any rank after which the launch is ended as stalled. 0 means never.
      - Until the first line, O(rendezvous_timeout) is granted on top.
    type: float
    default: 0.0
  rendezvous_timeout:
    description: Seconds that torchrun waits for the other nodes at the start.
    type: int
    default: 120
  stop_timeout:
    description: >-
      Seconds that the ranks have between SIGTERM and SIGKILL when somebody ends the launch, or its time limit does.
      Only ranks get this SIGTERM, so that what they use (loaders, torchrun) is still there to write a checkpoint.
    type: int
    default: 30
  failure_timeout:
    description: >-
      Seconds that everything in the launch's unit has between SIGTERM and SIGKILL after a failure, a lost lease, and
      behind O(stop_timeout).
    type: int
    default: 5
  silence_timeout:
    description: >-
      Seconds without an answer of a node after which an attached launch is ended on all of them. 0 means 9, and up to
      15 with many nodes, which is also the least.
    type: float
    default: 0.0
  min_free_mb:
    description: Megabytes that must be free where the run directory will be.
    type: int
    default: 64
  log_max_mb:
    description:
      - Megabytes that each rank's stdout and stderr, and torchrun's own output, may have on a node. 0 means no limit.
      - Of a longer one, the beginning and the end are kept.
    type: int
    default: 256
  show_rank:
    description: Rank whose output is shown as it comes. -1 means none; the logs hold all of it anyway.
    type: int
    default: -1
  detached:
    description:
      - Whether to return as soon as all ranks run, and leave the launch to itself. It then holds no lease, and is ended
        by O(time_limit) instead.
    type: bool
    default: false
  time_limit:
    description: Seconds after which the launch is ended wherever it is. 0 means never. A detached launch needs one.
    type: int
    default: 0
  wait:
    description:
      - Whether to wait while another launch, or a process outside of launches, has the GPUs, the processors or the port
        that this one needs. It holds nothing of them meanwhile.
    type: bool
    default: false
  wait_timeout:
    description: Seconds after which a launch that waits gives up. 0 means never.
    type: float
    default: 0.0
  shared:
    description:
      - Whether to run beside others on the same GPUs or processors. It then needs a port of its own.
    type: bool
    default: false
  restarts:
    description:
      - Number of attempts that may follow a first one that failed. Each has an id and a port of its own, the first
        one's work folder, C(MUSTER_ATTEMPT) in its environment, and C(MUSTER_CHECKPOINT) where O(checkpoints) finds
        one.
      - A node that the failure names is left out. O(spares) take its place, else O(min_nodes) lets the rest go on, else
        it is used again where nothing is found wrong with it.
      - Not where it will repeat - the same exception at the same place twice, or three attempts without a newer
        checkpoint.
      - Of a detached launch, a watcher on the head node begins them, in the systemd of whoever launches for themselves.
        It logs in on the others as that user; where it cannot, the launch is refused before the start. So is an
        administrator's.
    type: int
    default: 0
  spares:
    description: Nodes of gpu_nodes that take no part until one fails, and then its place.
    type: list
    elements: str
    default: []
  min_nodes:
    description:
      - Number of nodes with which an attempt may go on, ranks reckoned anew. 0 means not with fewer than before.
    type: int
    default: 0
  checkpoints:
    description:
      - Where checkpoints lie on the nodes, as a glob, such as C(/data/run7/step-*). A relative one begins in the
        working directory of the launch. The newest complete one is C(MUSTER_CHECKPOINT) of each attempt.
      - Complete is a file of torch.save or safetensors that has its end, a folder of torch.distributed.checkpoint with
        its C(.metadata), another folder whose files are complete, or any other file that is not empty.
    type: str
    default: ""
  fetch:
    description:
      - Patterns of files in the working folders, which are brought here when the launch has ended, however it did, into
        C(fetched/NODE/) beside its logs. As a shell has them, for each part of a path; C(**) is any number of folders,
        and a folder that matches comes with all that is in it. Links are not followed.
      - Whoever attaches to a detached launch fetches what it was begun with.
    type: list
    elements: str
    default: []
  fetch_max_mb:
    description: Megabytes that are fetched from all nodes together. What does not fit is named, and stays there.
    type: int
    default: 1000
  probe:
    description:
      - Whether the participants call each other before the start, on the launch's own addresses and port.
      - A link that does not carry calls refuses the launch, and is named with both ends. It takes about a second.
    type: bool
    default: true
  diagnose:
    description:
      - Whether a launch that has failed is diagnosed at once, while its nodes are as it left them. That takes up to 20
        seconds, asks the nodes involved once more, and changes nothing.
    type: bool
    default: true
  observe:
    description:
      - Whether the ranks can be asked where they are and which collectives they have begun, so that it can be said why
        a launch failed, or whom it waits for. A C(sitecustomize) does that, in ranks alone, which also calls the one
        that Python would have found without it.
    type: bool
    default: true
  notice_timeout:
    description:
      - Seconds that a launch seems to stand still until that is said, with the rank that the others wait for. 0 means
        never. Nothing is ended by it. A launch that has been quiet for long before has three times as long.
      - It needs O(observe).
    type: float
    default: 180.0
  attach:
    description:
      - Id of a detached launch, to be watched to its end. Its logs are fetched whole.
      - One that was begun from another controller is found on its nodes, which keep its plan.
      - An interruption leaves it running.
    type: str
    default: ""
  stop:
    description: Id of a launch to be ended on all of its nodes, wherever it was begun.
    type: str
    default: ""
  run_as:
    description:
      - Whose launch it is. V(cluster_user) is an administrator's - root starts it on the nodes, as C(cluster_user).
      - V(self) is the own launch of whoever logs in, who is in the group C(muster-launch) on every participant. It runs
        as that account, in its own systemd and without root, with its files under C(cluster_users_root).
      - V(auto) is V(self) where whoever logs in is in that group and not root, and V(cluster_user) otherwise.
    type: str
    choices: [auto, self, cluster_user]
    default: cluster_user
extends_documentation_fragment: action_common_attributes
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
