#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Builds, verifies and switches the PyTorch environment of a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pytorch_env
short_description: Manage a verified PyTorch environment on a node
version_added: "0.1.0"
description:
  - Builds a virtual environment with exact versions next to the current one, verifies its PyTorch, and then switches
    the link C(current) to the new environment.
  - Every run verifies the environment itself and does not rely on marker files. If the environment is incomplete,
    damaged or different, a new one is built next to it.
  - The controller stores the wheels with their hashes in a lock file, and all nodes install exactly these wheels. One
    node downloads the wheels and the other nodes receive them over the training network, each from a node that already
    has them. A node that does not receive the wheels downloads them.
  - Use the module once for each O(step). V(look) computes the changes. The other steps apply the changes on the nodes
    that need them. Nodes do not wait for each other within a step.
  - An older environment is removed only if no process uses it.
author: The Muster authors
options:
  root:
    description: >-
      Folder for the environments (C(envs/)) and the link C(current). Other files in this folder are not changed.
    type: path
    required: true
  mode:
    description:
      - Mode of the module. V(manage) applies the differences.
      - V(verify) imports PyTorch, evaluates the environment and changes nothing. C(current) can be any environment.
    type: str
    choices: [manage, verify]
    default: manage
  package:
    description:
      - Main package of the environment. If the package is not V(torch), O(torch_version) is the version of this
        package, O(variant) must be V(plain), O(gpus) is ignored, and O(mode) must be V(manage).
    type: str
    default: torch
  root_option:
    description: Name of the variable that sets O(root), used in messages.
    type: str
    default: pytorch_root
  torch_version:
    description: Exact version of torch, without a local version label (C(+cu126)).
    type: str
    required: true
  gpus:
    description: Number of GPUs that the node trains on. If the number is not 0, PyTorch must support the nccl backend.
    type: int
    default: 0
  auto_variant:
    description:
      - Build that V(auto) selects on nodes with GPUs, or V(cuda) if empty. A build in the lock takes precedence.
    type: str
    default: ""
  packages:
    description: Additional packages as exact pins, C(name==version), with optional C(python_version) markers.
    type: list
    elements: str
    default: []
  ranges:
    description:
      - Whether O(packages) contains lines of a requirements file, with version ranges and markers. The action plugin
        sets this option for each of O(environments).
    type: bool
    default: false
  environments:
    description:
      - Additional named environments, in the format of C(cluster_environments). Each step runs for each of them.
      - The lock of an environment is C(NAME.lock.txt) next to O(lock). M(existing_env) inspects environments with a
        C(prefix).
    type: dict
    default: {}
  environments_root:
    description:
      - Folder with one subfolder per entry of O(environments). Other environments in this folder are removed unless a
        process uses them. If empty, no environment is removed.
    type: path
    default: ""
  users_root:
    description:
      - Folder with one subfolder per launch user. If set, O(environments) are environments of the login user, in
        C(NAME/envs), and the default environment is not built. The lock of each is next to its source file.
    type: path
    default: ""
  prune:
    description: Whether to remove environments of the login user that are not in O(environments).
    type: bool
    default: false
  user:
    description:
      - Unprivileged user that verifies the environment, and user of the SSH mesh. Until this user exists, V(nobody)
        verifies the environment.
    type: str
    default: nobody
  extra_ca:
    description: File on the node with CA certificates for pip, in addition to the system store.
    type: path
    default: ""
  offline_dir:
    description: Folder that contains all packages, as a path on the node. If set, no package index is used.
    type: path
    default: ""
  mirror:
    description:
      - Mirror URLs that V(auto) of O(index_url) uses, with the keys C(pip) and C(torch) or C(torch_links). The default
        is derived from C(cluster_mirror).
    type: dict
    default: {}
  environment:
    description: >-
      Environment variables for pip. The default is the proxies from C(cluster_http_proxy) and C(cluster_https_proxy).
    type: dict
    default: {}
  switch:
    description:
      - When to switch C(current) to the environment. V(always) switches after the verification. V(idle) fails if a
        process uses the current environment. V(never) does not switch.
    type: str
    choices: [always, idle, never]
    default: always
  lock:
    description: Lock file on the controller with the wheels of all environments. If empty, there is no lock.
    type: path
    default: ""
  step:
    description:
      - Step to run. V(look) computes the changes and changes nothing.
      - V(fetch) downloads the wheels on the first node that needs them, records them in O(lock), and copies them to all
        nodes with the same request. Wheels that are still on a node are not downloaded again.
      - If the download fails, run V(fetch) again, which uses the next node.
      - V(provide) applies the changes computed by V(look).
    type: str
    choices: [look, fetch, provide]
    default: look
  looks:
    description: Name of the variable with the registered result of the V(look) step.
    type: str
    default: ""
  fetched:
    description: Names of the variables with the registered results of earlier V(fetch) steps.
    type: list
    elements: str
    default: []
  locked:
    description: Sections of the lock. The action plugin sets this option, O(reviewed) and O(reviewed_lock).
    type: list
    elements: dict
    default: []
  reviewed:
    description: Sections of the locks shipped with Muster, for requests that are not in O(locked).
    type: list
    elements: dict
    default: []
  reviewed_lock:
    description: Whether the action plugin passes O(reviewed).
    type: bool
    default: false
  keep_wheels:
    description: Whether to keep the wheels on this node for other nodes.
    type: bool
    default: false
  lock_timeout:
    description: Time in seconds to wait for another run that uses the same O(root).
    type: int
    default: 900
extends_documentation_fragment:
  [role_options.posix, action_common_attributes, role_options.pytorch, role_options.node]
"""

EXAMPLES = r"""
- name: Check PyTorch for eight GPUs, with wheels from a folder only
  pytorch_env: &request
    node: "{{ inventory_hostname }}"
    root: /opt/muster/pytorch
    torch_version: 2.13.0
    variant: cu126
    gpus: 8
    packages: [numpy==2.3.5]
    user: muster
    offline_dir: /srv/wheels
    lock: "{{ inventory_dir }}/pytorch.lock.txt"
  become: true
  register: look

- name: Download the wheels on one node
  pytorch_env:
    <<: *request
    step: fetch
    looks: look
  become: true
  register: wheels
  when: look is changed and not ansible_check_mode

- name: Build the environment
  pytorch_env:
    <<: *request
    step: provide
    looks: look
    fetched: [wheels]
  become: true
  when: look is changed and not ansible_check_mode

- name: Verify an environment that Muster does not manage
  pytorch_env:
    node: "{{ inventory_hostname }}"
    root: /opt/site/pytorch
    mode: verify
    torch_version: 2.13.0
  become: true
"""

RETURN = r"""
named:
  description:
    - Results for each of O(environments) that is built here. A failed environment has C(failed) and C(msg).
    - An environment with a C(prefix) has C(existing) with its C(path), C(made_by), C(python) and C(torch).
  returned: when there are any
  type: dict
forget:
  description: Named environments that are removed because they are not in O(environments) any more.
  returned: mode is manage
  type: list
  elements: str
login:
  description: Account that logs in.
  returned: O(users_root) is set
  type: str
environment:
  description: Environment that C(current) points to after the changes.
  returned: when the request can be fulfilled
  type: str
  sample: /opt/muster/pytorch/envs/2.13.0-cpu-py3.11-1f0c2a7b
plan:
  description: Required changes with reasons. All lists are empty if the node matches the request.
  returned: mode is manage
  type: dict
  contains:
    reasons: {description: Reasons for the changes., type: list, elements: str, returned: always}
    build: {description: Name of the environment to build. Empty if none., type: str, returned: always}
    switch: {description: Whether the link changes., type: bool, returned: always}
    remove: {description: Names of the environments to remove., type: list, elements: str, returned: always}
torch:
  description: Result of the verification. Empty in check mode if there is no environment yet.
  returned: when the request can be fulfilled
  type: dict
  contains:
    version: {description: Version with its local version label., type: str, returned: always, sample: 2.13.0+cpu}
    cuda: {description: CUDA version of the build. null for a CPU build., type: str, returned: always}
    nccl: {description: NCCL library that torch loads (version and file)., type: dict, returned: always}
    backends: {description: Backends of the build., type: list, elements: str, returned: after an import}
    cuda_available: {description: Whether torch can use a GPU., type: bool, returned: after an import}
    device_count: {description: Number of GPUs that torch detects., type: int, returned: after an import}
    imported: {description: Whether torch was imported., type: bool, returned: always}
    looked_as: {description: User that ran the verification., type: str, returned: always}
    python: {description: Python version., type: str, returned: always}
    packages: {description: All packages of the environment with their versions., type: dict, returned: always}
needs:
  description: Information for the following steps.
  returned: mode is manage, and nothing was changed yet
  type: dict
  contains:
    build: {description: Whether wheels are needed., type: bool, returned: always}
    key: {description: Identifier that is equal on nodes with the same request., type: str, returned: always}
    here: {description: Whether the node has the wheels of the lock., type: bool, returned: always}
    section: {description: Lock section for the node. null if there is none., type: dict, returned: always}
wheels:
  description: Origin of the wheels.
  returned: when an environment was built
  type: dict
  contains:
    came_from:
      description: Other nodes, V(here), V(index), or V(folder) offline.
      type: list
      elements: str
      returned: always
    why:
      description: Reason why the wheels did not come from other nodes. Empty if they did.
      type: str
      returned: always
    kept:
      description: Folder in which the wheels are kept for other nodes. Empty if none.
      type: str
      returned: always
locked:
  description: Changes in the lock, as messages.
  returned: when the lock was written
  type: list
  elements: str
section:
  description: Downloaded wheels, in the format of the lock.
  returned: step is fetch, on the node that downloaded them
  type: dict
holders:
  description: Nodes that keep these wheels for other nodes.
  returned: step is fetch, on the node that downloaded them
  type: list
  elements: str
came:
  description: Source nodes of each node that received wheels from other nodes.
  returned: step is fetch, on the node that downloaded them
  type: dict
why:
  description: Reason for each node that did not receive all wheels.
  returned: step is fetch, on the node that downloaded them
  type: dict
lost:
  description: Nodes that did not respond or have no free disk space.
  returned: step is fetch, on the node that downloaded them
  type: list
  elements: str
complete:
  description: Whether any node has all wheels.
  returned: step is fetch, on the node that downloaded them
  type: bool
findings:
  description: Findings about the environment, one per check.
  returned: when the request can be fulfilled
  type: list
  elements: dict
pip_output: {description: Complete output of pip., returned: when pip failed, type: list, elements: str}
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.pytorch.lock import LockError
from ansible.module_utils.muster.pytorch.request import EnvironmentRequestError
from ansible.module_utils.muster.pytorch.wheels import WheelError
from ansible.module_utils.muster_node.pytorch.manager import EnvironmentManager, verify
from ansible.module_utils.muster_node.pytorch.own import own_folder, refuse_root
from ansible.module_utils.muster_node.pytorch.root import LookedAs, PytorchRoot
from ansible.module_utils.muster_node.tools.result import one_sentence

SEVERAL = {"type": "list", "elements": "str", "default": []}
SPEC = {
    "node": {"type": "str", "required": True},
    "root": {"type": "path", "required": True},
    "mode": {"type": "str", "choices": ["manage", "verify"], "default": "manage"},
    "package": {"type": "str", "default": "torch"},
    "root_option": {"type": "str", "default": "pytorch_root"},
    "torch_version": {"type": "str", "required": True},
    "variant": {"type": "str", "default": "auto"},
    "gpus": {"type": "int", "default": 0},
    "auto_variant": {"type": "str", "default": ""},
    "packages": SEVERAL,
    "ranges": {"type": "bool", "default": False},
    "environments": {"type": "dict", "default": {}},
    "environments_root": {"type": "path", "default": ""},
    "users_root": {"type": "path", "default": ""},
    "prune": {"type": "bool", "default": False},
    "python": {"type": "path", "default": "/usr/bin/python3"},
    "user": {"type": "str", "default": "nobody"},
    "index_url": {"type": "str", "default": "auto"},
    "extra_index_urls": SEVERAL,
    "find_links": SEVERAL,
    "source_builds": SEVERAL,
    "extra_ca": {"type": "path", "default": ""},
    "offline_dir": {"type": "path", "default": ""},
    "mirror": {"type": "dict", "default": {}},
    "environment": {"type": "dict", "default": {}},
    "keep": {"type": "int", "default": 1},
    "full_look": {"type": "bool", "default": False},
    "switch": {"type": "str", "choices": ["always", "idle", "never"], "default": "always"},
    "lock": {"type": "path", "default": ""},
    "step": {"type": "str", "choices": ["look", "fetch", "provide"], "default": "look"},
    "looks": {"type": "str", "default": ""},
    "fetched": SEVERAL,
    "locked": {"type": "list", "elements": "dict", "default": []},
    "reviewed": {"type": "list", "elements": "dict", "default": []},
    "reviewed_lock": {"type": "bool", "default": False},
    "keep_wheels": {"type": "bool", "default": False},
    "lock_timeout": {"type": "int", "default": 900},
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    params = module.params
    # All users of the node must be able to read the environment, regardless of root's umask.
    os.umask(0o022)
    # Environment variables for pip and its child processes.
    os.environ.update(params["environment"])
    with one_sentence(module, params["root"], (EnvironmentRequestError, LockError, WheelError)):
        if params["users_root"]:
            refuse_root()
        root = PytorchRoot(params["root"], LookedAs.choose(params["user"]), params["package"], params["root_option"])
        if params["users_root"] and params["environments_root"]:
            result = own_folder(params, check=module.check_mode)
        elif params["mode"] == "verify":
            result = verify(root, params)
        else:
            manager = EnvironmentManager(root, params, check=module.check_mode)
            result = {"look": manager.look, "fetch": manager.fetch, "provide": manager.provide}[params["step"]]()
        for note in result.pop("notes", ()):
            module.warn(note)
        module.exit_json(**result)


if __name__ == "__main__":
    main()
