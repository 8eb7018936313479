#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Builds, switches and looks at the PyTorch environment of a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pytorch_env
short_description: One PyTorch environment on a node, looked at before it is used
version_added: "0.1.0"
description:
  - Builds a virtual environment with exact versions beside the one in use, looks whether its PyTorch works,
    and only then lets the link C(current) lead to it.
  - The environment is looked at on every run. There are no marker files. What is unfinished, damaged or
    different is built anew beside it.
  - Its wheels are written down in a lock on the controller, and every node gets exactly those. One node downloads them,
    and from there they go to the others over the training network, each node giving on what it gets. A node that gets
    none downloads them itself.
  - It is used once for each O(step). The look shows what is to be done; the others do it on the nodes that need it. No
    node waits for another one within a step.
  - An older environment is removed only when no process uses it.
author: The Muster authors
options:
  node:
    description: Name of the node in the inventory, for messages and findings.
    type: str
    required: true
  root:
    description: Folder that holds C(envs/) and the link C(current). Nothing else in it is touched.
    type: path
    required: true
  mode:
    description:
      - With V(manage) the environment is made to be as asked.
      - With V(verify) it is imported and judged, and nothing is changed. C(current) may be any environment.
    type: str
    choices: [manage, verify]
    default: manage
  package:
    description:
      - What the environment is there for. Of another package than V(torch), O(torch_version) is the version, O(variant)
        is V(plain), O(gpus) means nothing, and O(mode) is V(manage).
    type: str
    default: torch
  root_option:
    description: Name of the variable that names O(root), for messages.
    type: str
    default: pytorch_root
  torch_version:
    description: Exact version of torch, without the build after a C(+).
    type: str
    required: true
  gpus:
    description: Number of GPUs that the node trains on. With any, the nccl backend is required.
    type: int
    default: 0
  auto_variant:
    description:
      - What V(auto) is on a node with GPUs. Empty means V(cuda). A build that is in the lock comes first.
    type: str
    default: ""
  packages:
    description:
      - Further packages as exact pins, C(name==version), each with an optional C(python_version) marker.
    type: list
    elements: str
    default: []
  ranges:
    description:
      - Whether O(packages) are lines of a requirements file, with ranges and markers. Set by the controller's part of
        the module for each of O(environments).
    type: bool
    default: false
  environments:
    description:
      - Environments beside this one, as C(cluster_environments) has them. The controller's part of the module takes
        each step for every one of them, with a lock C(NAME.lock.txt) beside O(lock). One with a C(prefix) is looked at
        by M(existing_env) and judged.
    type: dict
    default: {}
  environments_root:
    description:
      - Folder that holds a folder for each of O(environments). Those that are not among them are removed from it,
        unless a process uses them. Empty for leaving it alone.
    type: path
    default: ""
  user:
    description:
      - Unprivileged user as whom the environment is looked at, and whom the ssh mesh lets in. V(nobody) looks until it
        exists.
    type: str
    default: nobody
  extra_ca:
    description: File on the node with certificates that pip trusts besides the system's.
    type: path
    default: ""
  offline_dir:
    description: Folder on the node with every package. No index is asked then.
    type: path
    default: ""
  mirror:
    description:
      - Where V(auto) of O(index_url) looks, C(pip) and C(torch) or C(torch_links). Default, what C(cluster_mirror) has.
    type: dict
    default: {}
  environment:
    description: Variables for pip; by default those of C(cluster_http_proxy) and C(cluster_https_proxy).
    type: dict
    default: {}
  switch:
    description:
      - When C(current) leads to the environment. V(always) does it as soon as it works; V(idle) refuses while a process
        uses the one that C(current) leads to; V(never) leaves the link where it is.
    type: str
    choices: [always, idle, never]
    default: always
  lock:
    description: File on the controller with the wheels of every environment. Empty for none.
    type: path
    default: ""
  step:
    description:
      - V(look) says what is to be done, and changes nothing.
      - V(fetch) gets the wheels on the first node that needs them, writes them down in O(lock), and brings them to
        all that need the same. Where a node has kept them, nobody downloads any. On the other nodes it is skipped.
        Used once more, it has the next node try where the first one failed.
      - V(provide) makes the environment what the look found it should be.
    type: str
    choices: [look, fetch, provide]
    default: look
  looks:
    description: Name of the variable in which the look was registered, for the steps that follow it.
    type: str
    default: ""
  fetched:
    description: Names of the variables in which uses with V(fetch) of O(step) were registered so far.
    type: list
    elements: str
    default: []
  locked:
    description: Sections of the lock; set by the controller's part of the module, as the next two are.
    type: list
    elements: dict
    default: []
  reviewed:
    description: Sections of the locks that come with Muster, for what O(locked) lacks; set likewise.
    type: list
    elements: dict
    default: []
  reviewed_lock:
    description: Whether the controller's part of the module hands them over.
    type: bool
    default: false
  keep_wheels:
    description: Whether the wheels stay here for other nodes.
    type: bool
    default: false
  lock_timeout:
    description: Seconds to wait for another run that works in the same O(root).
    type: int
    default: 900
extends_documentation_fragment: [action_common_attributes, role_options.pytorch]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  platform: {support: full, platforms: posix}
"""

EXAMPLES = r"""
- name: Look at PyTorch for eight GPUs, with wheels from a folder and nothing but it
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

- name: Download its wheels on one node
  pytorch_env:
    <<: *request
    step: fetch
    looks: look
  become: true
  register: wheels
  when: look is changed and not ansible_check_mode

- name: Provide it
  pytorch_env:
    <<: *request
    step: provide
    looks: look
    fetched: [wheels]
  become: true
  when: look is changed and not ansible_check_mode

- name: Judge the environment that the site maintains itself
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
    - The same for each of O(environments) that is built here. What failed has C(failed) and C(msg).
    - For one with a C(prefix), C(existing) with its C(path), C(made_by), C(python) and C(torch).
  returned: there are any
  type: dict
forget:
  description: Environments with a name that are removed, because O(environments) has them no longer.
  returned: mode is manage
  type: list
  elements: str
environment:
  description: The environment that C(current) leads to, or will.
  returned: when the request can be
  type: str
  sample: /opt/muster/pytorch/envs/2.13.0-cpu-py3.11-1f0c2a7b
plan:
  description: What was to be done and why. All lists are empty when the node was as asked.
  returned: mode is manage
  type: dict
  contains:
    reasons: {description: Why there is something to do., type: list, elements: str, returned: always}
    build: {description: Name of the environment to build; empty for none., type: str, returned: always}
    switch: {description: Whether the link is to change., type: bool, returned: always}
    remove: {description: Names of the environments to remove., type: list, elements: str, returned: always}
torch:
  description: What the look found. Empty when there was nothing to look at yet (check mode).
  returned: when the request can be
  type: dict
  contains:
    version: {description: Version with its build., type: str, returned: always, sample: 2.13.0+cpu}
    cuda: {description: CUDA that the build is for; null for none., type: str, returned: always}
    nccl: {description: The NCCL that it loads (version and file)., type: dict, returned: always}
    backends: {description: Backends it was built with., type: list, elements: str, returned: after an import}
    cuda_available: {description: Whether torch can use a GPU., type: bool, returned: after an import}
    device_count: {description: Number of GPUs that torch sees., type: int, returned: after an import}
    imported: {description: Whether torch was imported., type: bool, returned: always}
    looked_as: {description: User as whom the look was taken., type: str, returned: always}
    python: {description: Version of Python., type: str, returned: always}
    packages: {description: Every package of the environment with its version., type: dict, returned: always}
needs:
  description: What the look has to say to the steps after it.
  returned: mode is manage, and nothing was changed yet
  type: dict
  contains:
    build: {description: Whether wheels are needed., type: bool, returned: always}
    key: {description: The same on nodes that need the same wheels., type: str, returned: always}
    here: {description: Whether the node has the wheels of the lock., type: bool, returned: always}
    section: {description: What the lock has for the node; null for nothing., type: dict, returned: always}
wheels:
  description: Where the wheels came from.
  returned: an environment was built
  type: dict
  contains:
    came_from:
      description: Other nodes, V(here), V(index), or V(folder) offline.
      type: list
      elements: str
      returned: always
    why: {description: "Why they did not come from other nodes; empty where they did.", type: str, returned: always}
    kept: {description: Folder in which they stay for other nodes; empty for none., type: str, returned: always}
locked:
  description: What is different in the lock, for people.
  returned: the lock was written
  type: list
  elements: str
section:
  description: The wheels that were fetched, as the lock has them.
  returned: step is fetch, on the node that got them
  type: dict
holders:
  description: The nodes that have these wheels for others.
  returned: step is fetch, on the node that got them
  type: list
  elements: str
came:
  description: For each node that got any from others, those from which they came.
  returned: step is fetch, on the node that got them
  type: dict
why:
  description: For each node that did not get all, why not.
  returned: step is fetch, on the node that got them
  type: dict
lost:
  description: Nodes that did not answer, or have no room.
  returned: step is fetch, on the node that got them
  type: list
  elements: str
complete:
  description: Whether any node has all of them.
  returned: step is fetch, on the node that got them
  type: bool
findings:
  description: Conclusions about the environment, one for each check.
  returned: when the request can be
  type: list
  elements: dict
pip_output:
  description: Everything that pip printed.
  returned: when pip failed
  type: list
  elements: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.pytorch.lock import LockError
from ansible.module_utils.muster.pytorch.request import EnvironmentRequestError
from ansible.module_utils.muster.pytorch.wheels import WheelError
from ansible.module_utils.muster_node.pytorch.manager import EnvironmentManager, verify
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
    # Every user of the node may read the environment, whatever umask root has.
    os.umask(0o022)
    # pip goes by them, and so does whatever it starts.
    os.environ.update(params["environment"])
    with one_sentence(module, params["root"], (EnvironmentRequestError, LockError, WheelError)):
        root = PytorchRoot(params["root"], LookedAs.choose(params["user"]), params["package"], params["root_option"])
        if params["mode"] == "verify":
            module.exit_json(**verify(root, params))
        manager = EnvironmentManager(root, params, check=module.check_mode)
        step = {"look": manager.look, "fetch": manager.fetch, "provide": manager.provide}[params["step"]]
        result = step()
        for note in result.pop("notes", ()):
            module.warn(note)
        module.exit_json(**result)


if __name__ == "__main__":
    main()
