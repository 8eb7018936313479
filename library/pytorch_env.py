#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Builds, switches and looks at the PyTorch environment of a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pytorch_env
short_description: One PyTorch environment on a node, looked at before it is used
description:
  - Builds a virtual environment with exact versions beside the one in use, looks whether its PyTorch works,
    and only then lets the link C(current) lead to it.
  - The environment is looked at on every run. There are no marker files. What is unfinished, damaged or
    different is built anew beside it.
  - Its wheels are written down in a lock on the controller, and every node gets exactly those. One node downloads them,
    and the others fetch them from there over the ssh mesh. A node that cannot downloads them itself.
  - It is used twice. The first use looks, and shows what is to be done. The second one, with O(looks), does it on the
    nodes that need it.
  - An older environment is removed only when no process uses it.
version_added: "0.1.0"
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
  torch_version:
    description: Exact version of torch, without the build after a C(+).
    type: str
    required: true
  variant:
    description:
      - Which build of torch. V(cpu), or a CUDA build such as V(cu126), or V(cuda) for the one that the index
        offers by default.
      - V(auto) is V(cuda) when O(gpus) is not 0, and V(cpu) otherwise.
    type: str
    default: auto
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
  python:
    description: Python that the environment is made with.
    type: path
    default: /usr/bin/python3
  user:
    description:
      - Unprivileged user as whom the environment is looked at, and whom the ssh mesh lets in. V(nobody) looks until it
        exists.
    type: str
    default: nobody
  index_url:
    description:
      - Package index. Empty means the one that pip on the node is set up with.
      - V(auto) is the same, and when it has no such V(cpu) or V(cuNNN) build, PyTorch's own index as well.
    type: str
    default: auto
  extra_index_urls:
    description: Further package indexes.
    type: list
    elements: str
    default: []
  find_links:
    description: Folders on the node, or addresses of pages, with packages.
    type: list
    elements: str
    default: []
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
  keep:
    description: Number of earlier environments that are kept.
    type: int
    default: 1
  full_look:
    description:
      - Whether torch is imported although nothing changed. Without it, the files alone are looked at then.
    type: bool
    default: false
  lock:
    description: File on the controller with the wheels of every environment. Empty for none.
    type: path
    default: ""
  looks:
    description:
      - Name of the variable in which the first use of the module was registered. Empty for the first use.
    type: str
    default: ""
  step:
    description: What the controller's part of the module asks the node for; not for playbooks. Nor are the next three.
    type: str
    choices: [look, fetch, provide]
    default: look
  locked:
    description: Sections of the lock.
    type: list
    elements: dict
    default: []
  peers:
    description: Nodes that may have the wheels.
    type: list
    elements: str
    default: []
  keep_wheels:
    description: Whether the wheels stay here for other nodes.
    type: bool
    default: false
  lock_timeout:
    description: Seconds to wait for another run that works in the same O(root).
    type: int
    default: 900
extends_documentation_fragment: action_common_attributes
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

- name: Provide it
  pytorch_env:
    <<: *request
    looks: look
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
  description: What the look has to say to the second use.
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
      description: Peers, V(here), V(index), or V(folder) offline.
      type: list
      elements: str
      returned: always
    tried: {description: Peers that were asked; see M(peer_files)., type: list, elements: dict, returned: always}
    kept: {description: Folder in which they stay for other nodes; empty for none., type: str, returned: always}
locked:
  description: What is different in the lock, for people.
  returned: the lock was written
  type: list
  elements: str
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
from dataclasses import asdict
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.packages import peer_files as peer_domain
from ansible.module_utils.muster.pytorch import env as domain
from ansible.module_utils.muster.pytorch import lock as pytorch_lock
from ansible.module_utils.muster.verdict.commands import playbook
from ansible.module_utils.muster.verdict.finding import Finding, with_fix
from ansible.module_utils.muster_node.pytorch.root import Interpreter, LookedAs, PytorchError, PytorchRoot, ask_python
from ansible.module_utils.muster_node.pytorch.wheelhouse import Wheelhouse, sources_of


def ask_of(params: dict[str, Any]) -> pytorch_lock.Ask:
    asked = {name: params[name] for name in ("torch_version", "variant", "gpus")}
    return pytorch_lock.Ask(**asked, packages=tuple(params["packages"]), auto=params["auto_variant"])


def reported(look: dict[str, Any], looked_as: str) -> dict[str, Any]:
    if not look.get("torch"):
        return {}
    same = {key: look[key] for key in ("packages", "imported")}
    return {**look["torch"], **same, "python": look["python_full"], "looked_as": looked_as}


def refuse_a_bad_look(findings: list[Finding], result: dict[str, Any]) -> None:
    for finding in findings:
        if finding.status == "fail":
            sentence = with_fix(finding).removeprefix(f"{finding.node}: ")
            raise PytorchError(sentence, **result)


def verify(root: PytorchRoot, params: dict[str, Any]) -> dict[str, Any]:
    look = root.look(root.link, "import")
    if "packages" not in look and not root.link.exists():
        look["error"] = f"there is no environment at {root.link}"
    # The site may have made it with another Python than the node's.
    request = ask_of(params).request(look.get("python", "3.10"))
    findings = domain.judge(params["node"], request, look)
    result = {
        "changed": False,
        "environment": str(root.link.resolve()),
        "torch": reported(look, root.look_as.name),
        "findings": [finding.as_dict() for finding in findings],
    }
    refuse_a_bad_look(findings, result)
    return result


class Manager:
    """Makes the environment as it is asked for: one step of it at a time."""

    def __init__(self, root: PytorchRoot, params: dict[str, Any], *, check: bool) -> None:
        self.root = root
        self.params = params
        self.check = check
        self.python: Interpreter = ask_python(params["python"])
        sections = [pytorch_lock.section_of(given) for given in params["locked"]]
        self.choice = pytorch_lock.choose(sections, ask_of(params), self.python.version, self.python.machine)
        self.request: domain.Request = self.choice.request
        self.house = Wheelhouse(root, params, self.request, self.python)

    def look(self) -> dict[str, Any]:
        sources_of(self.request, self.params)  # an address that cannot be used is refused in check mode too
        before, plan = self._plan()
        look: dict[str, Any] = {}
        if plan.build and not self.check:
            self._need_venv()
        if not plan.build:
            full = self.params["full_look"]
            look = self.root.look(self.root.envs / plan.target, "import") if full else self.root.looks[plan.target]
        section = self.choice.section
        key = " ".join((self.request.name, self.python.machine, section.digest if section else ""))
        result = {
            **self._result(before, plan, look),
            "needs": {
                "build": plan.build,
                "key": key,
                "here": section is not None and self.house.has(section),
                "section": section.as_dict() if section else None,
            },
        }
        if self.choice.note:
            result["warnings"] = [f"{self.params['node']}: {self.choice.note}."]
        return result

    def fetch(self) -> dict[str, Any]:
        """Get the wheels here, for this node and for others; find out which ones they are."""
        section, tried = self.choice.section, []
        holders, came_from = [self.params["node"]], ["here"]
        upstream = "folder" if self.params["offline_dir"] else "index"
        self.root.prepare()
        with self.root.lock(self.params["lock_timeout"]) as lock:
            if section is None:
                section, came_from = self.house.resolve(lock), [upstream]
            else:
                missing, tried = self.house.fetch(section, self.params["peers"])
                peers = [attempt.peer for attempt in tried if attempt.fetched]
                if missing:
                    self.house.download(section, missing, lock)
                    came_from = [*peers, upstream]
                elif peers:
                    holders = came_from = peers
        return {
            "changed": True,
            "section": section.as_dict(),
            "holders": holders,
            "wheels": {"came_from": came_from, "tried": [asdict(attempt) for attempt in tried]},
        }

    def provide(self) -> dict[str, Any]:
        wheels: dict[str, Any] = {}
        self.root.prepare()
        with self.root.lock(self.params["lock_timeout"]) as lock:
            # Whoever held the lock may have done the work.
            before, plan = self._plan()
            for name in plan.discard:
                self.root.remove(name)
            if plan.build:
                wheels = self._build(plan, lock)
            look = self.root.look(self.root.envs / plan.target, "import")
            findings = domain.judge(self.params["node"], self.request, look)
            done = plan.build or bool(plan.discard)
            refuse_a_bad_look(findings, {"changed": done, "findings": [f.as_dict() for f in findings]})
            if plan.switch:
                self.root.switch(plan.target)
            for name in plan.retire:
                self.root.remove(name)
            if self.choice.section and plan.build:
                self.house.tidy(self.choice.section.digest if self.params["keep_wheels"] else "")
        result = self._result(before, plan, look)
        if wheels:
            result["wheels"] = wheels
            why = [f"{attempt['peer']}: {attempt['why']}" for attempt in wheels["tried"] if attempt["why"]]
            if why and "index" in wheels["came_from"]:
                result["warnings"] = [
                    f"{self.params['node']} downloaded its wheels itself. From peers it got none ({'; '.join(why)})."
                ]
        return result

    def _build(self, plan: domain.Plan, lock: int) -> dict[str, Any]:
        section = self.choice.section
        if section is None:
            raise PytorchError("its request is another one than before", "Run again")
        missing, tried = self.house.fetch(section, self.params["peers"])
        self.root.build(
            plan.target,
            self.params["python"],
            lambda path: self.house.install(path, section, lock, complete=not missing),
            lock,
        )
        peers = [attempt.peer for attempt in tried if attempt.fetched]
        return {
            "came_from": ["folder" if self.params["offline_dir"] else "index"] if missing else peers or ["here"],
            "tried": [asdict(attempt) for attempt in tried],
            "kept": str(self.house.path(section)) if self.params["keep_wheels"] else "",
        }

    def _need_venv(self) -> None:
        # In a check the baseline may not have been there yet.
        if not self.python.ensurepip:
            raise PytorchError(
                f"{self.params['python']} cannot make a virtual environment: python3-venv is missing",
                f"Run the baseline first: {playbook('site.yml', tags='baseline')}",
            )

    def _plan(self) -> tuple[domain.Observed, domain.Plan]:
        before = self.root.observe(self.request, self.params["keep"])
        return before, domain.plan(self.request, before, self.params["keep"])

    def _result(self, before: domain.Observed, plan: domain.Plan, look: dict[str, Any]) -> dict[str, Any]:
        findings = domain.judge(self.params["node"], self.request, look) if look else []
        result = {
            "changed": plan.changed,
            "environment": str(self.root.envs / plan.target),
            "plan": {
                "reasons": list(plan.reasons),
                "build": plan.target if plan.build else "",
                "switch": plan.switch,
                "remove": [*plan.discard, *plan.retire],
            },
            "diff": difference(self.request, before, plan, lock=bool(self.params["lock"])),
            "torch": reported(look, self.root.look_as.name),
            "findings": [finding.as_dict() for finding in findings],
        }
        refuse_a_bad_look(findings, result)
        return result


def difference(request: domain.Request, before: domain.Observed, plan: domain.Plan, *, lock: bool) -> dict[str, str]:
    was = before.environments.get(before.current) or domain.Environment()
    wanted = dict(request.locked) or {pin.name: pin.version for pin in request.requirements}
    gone = {*plan.discard, *plan.retire}
    after = ({*before.environments} | {plan.target}) - gone
    there, then = (
        domain.describe(request, before.current or before.link, was.packages, list(before.environments)),
        domain.describe(request, plan.target, wanted if plan.changed else was.packages, sorted(after)),
    )
    if lock and plan.build and not request.locked:
        there, then = f"{there}the lock: nothing for this request\n", f"{then}the lock: every wheel with its hash\n"
    return {"before": there, "after": then}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "root": {"type": "path", "required": True},
            "mode": {"type": "str", "choices": ["manage", "verify"], "default": "manage"},
            "torch_version": {"type": "str", "required": True},
            "variant": {"type": "str", "default": "auto"},
            "gpus": {"type": "int", "default": 0},
            "auto_variant": {"type": "str", "default": ""},
            "packages": {"type": "list", "elements": "str", "default": []},
            "python": {"type": "path", "default": "/usr/bin/python3"},
            "user": {"type": "str", "default": "nobody"},
            "index_url": {"type": "str", "default": "auto"},
            "extra_index_urls": {"type": "list", "elements": "str", "default": []},
            "find_links": {"type": "list", "elements": "str", "default": []},
            "extra_ca": {"type": "path", "default": ""},
            "offline_dir": {"type": "path", "default": ""},
            "mirror": {"type": "dict", "default": {}},
            "environment": {"type": "dict", "default": {}},
            "keep": {"type": "int", "default": 1},
            "full_look": {"type": "bool", "default": False},
            "lock": {"type": "path", "default": ""},
            "looks": {"type": "str", "default": ""},
            "step": {"type": "str", "choices": ["look", "fetch", "provide"], "default": "look"},
            "locked": {"type": "list", "elements": "dict", "default": []},
            "peers": {"type": "list", "elements": "str", "default": []},
            "keep_wheels": {"type": "bool", "default": False},
            "lock_timeout": {"type": "int", "default": 900},
        },
        supports_check_mode=True,
    )
    params = module.params
    # Every user of the node may read the environment, whatever umask root has.
    os.umask(0o022)
    # pip goes by them, and so does whatever it starts.
    os.environ.update(params["environment"])
    try:
        root = PytorchRoot(params["root"], LookedAs.choose(params["user"]))
        if params["mode"] == "verify":
            result = verify(root, params)
        else:
            manager = Manager(root, params, check=module.check_mode)
            result = {"look": manager.look, "fetch": manager.fetch, "provide": manager.provide}[params["step"]]()
    except (domain.RequestError, peer_domain.PeerFilesError) as problem:
        module.fail_json(msg=f"{params['node']}: {problem}")
    except PytorchError as problem:
        module.fail_json(msg=f"{params['node']}: {problem}", **problem.more)
    except OSError as problem:
        module.fail_json(msg=f"{params['node']}: {problem.filename or params['root']}: {problem.strerror}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
