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
      - Unprivileged user as whom the environment is looked at. V(nobody) stands in until it exists.
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
  keep:
    description: Number of earlier environments that are kept.
    type: int
    default: 1
  full_look:
    description:
      - Whether torch is imported although nothing changed. Without it, the files alone are looked at then.
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
- name: Provide PyTorch for the CPU
  pytorch_env:
    node: "{{ inventory_hostname }}"
    root: /opt/muster/pytorch
    torch_version: 2.13.0
    variant: cpu
    packages: [numpy==2.3.5]
    user: muster
  become: true

- name: Provide PyTorch for eight GPUs from a folder, and trust nothing but it
  pytorch_env:
    node: "{{ inventory_hostname }}"
    root: /opt/muster/pytorch
    torch_version: 2.13.0
    variant: cu126
    gpus: 8
    offline_dir: /srv/wheels
    keep: 2
  become: true

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
  returned: when the wish can be
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
  returned: when the wish can be
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
findings:
  description: Conclusions about the environment, one for each check.
  returned: when the wish can be
  type: list
  elements: dict
pip_output:
  description: Everything that pip printed.
  returned: when pip failed
  type: list
  elements: str
"""

import contextlib
import fcntl
import inspect
import json
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from errno import EACCES
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster import pytorch_env as domain
from ansible.module_utils.muster.verdict import Finding, with_fix
from ansible.module_utils.muster_node import look_torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SYSTEM_CA = Path("/etc/ssl/certs/ca-certificates.crt")
LOOK_TIMEOUT = {"files": 60, "import": 300}


class PytorchError(Exception):
    """One sentence about what stands in the way and what to do, and what belongs into the result with it."""

    def __init__(self, what: str, mend: str = "", **more: Any) -> None:
        super().__init__(f"{what}. {mend}" if mend else what)
        self.more = more


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no output"])[-1].strip()


def clean_environment() -> dict[str, str]:
    """The module's environment without what would lead Python or pip elsewhere."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return {**kept, "LC_ALL": "C.UTF-8", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}


@dataclass(frozen=True)
class LookedAs:
    """The user as whom the look is taken: what root can import says little about the training user."""

    name: str
    ids: dict[str, Any]

    @classmethod
    def choose(cls, wanted: str) -> LookedAs:
        if os.geteuid() != 0:
            return cls(pwd.getpwuid(os.geteuid()).pw_name, {})
        for name in (wanted, "nobody"):
            with contextlib.suppress(KeyError):
                entry = pwd.getpwnam(name)
                groups = os.getgrouplist(name, entry.pw_gid)
                return cls(name, {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": groups})
        raise PytorchError(f"there is neither a user {wanted} nor a user nobody to look as")


class PytorchRoot:
    """The folder with the environments: reading it, and the steps that change it."""

    def __init__(self, root: str, look_as: LookedAs) -> None:
        self.root = Path(root)
        self.envs = self.root / "envs"
        self.link = self.root / "current"
        self.look_as = look_as
        self.looks: dict[str, dict[str, Any]] = {}

    # Reading

    def look(self, environment: Path, depth: str) -> dict[str, Any]:
        """What the environment's own Python says about it; `error` when it says nothing."""
        try:
            done = subprocess.run(
                [str(environment / "bin" / "python"), "-I", "-", depth],
                input=inspect.getsource(look_torch),
                capture_output=True,
                text=True,
                check=False,
                cwd="/",
                timeout=LOOK_TIMEOUT[depth],
                env={"PATH": os.defpath, "LC_ALL": "C.UTF-8", "HOME": "/"},
                **self.look_as.ids,
            )
            answer: dict[str, Any] = json.loads((done.stdout.splitlines() or [""])[-1])
        except OSError as problem:
            error = f"{self.look_as.name} cannot start its Python: {problem.strerror}"
            mend = (
                "pytorch_python and pytorch_root must lie where every user may read" if problem.errno == EACCES else ""
            )
            return {"error": error, "mend": mend}
        except subprocess.TimeoutExpired:
            return {"error": f"its Python gave no answer in {LOOK_TIMEOUT[depth]} s"}
        except ValueError:
            said = f"exit status {done.returncode}: {last_line(done.stderr)}"
            return {"error": f"its Python gave no answer ({said})", "trace": done.stderr}
        return answer

    def environment(self, name: str) -> domain.Environment:
        look = self.looks[name] = self.look(self.envs / name, "files")
        if "packages" not in look:
            return domain.Environment(faults=(look["error"],))
        return domain.Environment(look["python"], look["packages"], tuple(look["faults"]))

    def observe(self, wish: domain.Wish, keep: int) -> domain.Observed:
        link = str(self.link.readlink()) if self.link.is_symlink() else ""
        leads_to = Path(os.path.normpath(self.root / link)) if link else None
        names = self.names()
        current = leads_to.name if leads_to and leads_to.parent == self.envs else ""
        if current not in names:
            current = ""
        looked: dict[str, domain.Environment | None] = dict.fromkeys(names)
        if current:
            looked[current] = self.environment(current)
        observed = domain.Observed(link, current, looked)
        if domain.plan(wish, observed, keep).changed:
            # Now it matters what the others are, and who uses them.
            looked |= {name: self.environment(name) for name in names if name != current}
            observed = domain.Observed(link, current, looked, self.in_use())
        return observed

    def names(self) -> list[str]:
        """The environments, newest first. A link, or a folder that no wish would name, is somebody else's."""
        if not self.envs.is_dir():
            return []
        with os.scandir(self.envs) as entries:
            ours = [e for e in entries if e.is_dir(follow_symlinks=False) and domain.is_environment(e.name)]
        return [entry.name for entry in sorted(ours, key=lambda entry: -entry.stat().st_mtime)]

    def in_use(self) -> frozenset[str]:
        """Environments that a process runs from, works in, or has files of in its memory."""
        prefix = f"{self.envs.resolve()}/"
        used: set[str] = set()
        for process in Path("/proc").glob("[0-9]*"):
            texts = []
            # A process may end at any moment, and a kernel thread has no exe.
            with contextlib.suppress(OSError):
                texts.append(f"{(process / 'cwd').readlink()}/")
                texts.append((process / "cmdline").read_text(errors="replace"))
            with contextlib.suppress(OSError):
                texts.append((process / "maps").read_text(errors="replace"))
            for text in texts:
                used.update(part.partition("/")[0] for part in text.split(prefix)[1:])
        return frozenset(used)

    # Changing

    def prepare(self) -> None:
        self.envs.mkdir(mode=0o755, parents=True, exist_ok=True)

    @contextlib.contextmanager
    def lock(self, timeout: int) -> Iterator[int]:
        """One run at a time. pip inherits the lock: when its run is killed, the next one waits for pip."""
        handle = os.open(self.envs, os.O_RDONLY)
        try:
            deadline = time.monotonic() + timeout
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise PytorchError(
                            f"another run has been at work in {self.root} for more than {timeout} s",
                            "Wait for it, or look on the node what its pip does",
                        ) from None
                    time.sleep(1)
            yield handle
        finally:
            os.close(handle)

    def remove(self, name: str) -> None:
        shutil.rmtree(self.envs / name)

    def switch(self, name: str) -> None:
        if self.link.exists() and not self.link.is_symlink():
            raise PytorchError(f"{self.link} is not a link", "Move it away, or choose another pytorch_root")
        beside = self.root / ".current.new"
        beside.unlink(missing_ok=True)
        beside.symlink_to(f"envs/{name}")
        beside.replace(self.link)

    def build(self, name: str, wish: domain.Wish, params: dict[str, Any], lock: int) -> None:
        """A new environment under its final path: its scripts carry that path, so it cannot be moved."""
        path = self.envs / name
        try:
            self.install(path, wish, params, lock)
        except PytorchError:
            # Gigabytes that nobody can use; with a full disk they are the cause.
            shutil.rmtree(path, ignore_errors=True)
            raise

    def install(self, path: Path, wish: domain.Wish, params: dict[str, Any], lock: int) -> None:
        if params["offline_dir"] and not Path(params["offline_dir"]).is_dir():
            raise PytorchError(f"there is no folder {params['offline_dir']}", "See pytorch_offline_dir")
        made = self.run([params["python"], "-m", "venv", str(path)], lock)
        if made.returncode != 0:
            raise PytorchError(f"no virtual environment can be made ({last_line(made.stdout)})")
        pip = [str(path / "bin" / "python"), "-m", "pip", "install", "--progress-bar", "off"]
        with trusted(path, params["extra_ca"]) as more:
            for where in sources_of(wish, params):
                done = self.run([*pip, *where, *map(str, wish.requirements)], lock, more)
                if done.returncode == 0:
                    return
                if not domain.torch_not_found(done.stdout):
                    break
        what, mend = domain.explain_pip(done.stdout, wish)
        raise PytorchError(what, mend, pip_output=done.stdout.splitlines())

    @staticmethod
    def run(command: list[str], lock: int, more: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            env={**clean_environment(), **(more or {})},
            pass_fds=(lock,),
        )


@contextlib.contextmanager
def trusted(environment: Path, extra_ca: str) -> Iterator[dict[str, str]]:
    """pip takes one bundle, so the system's and the extra one are joined for as long as it runs."""
    if not extra_ca:
        yield {}
        return
    base = SYSTEM_CA
    if not base.exists():
        base = next(environment.glob("lib/python3*/site-packages/pip/_vendor/certifi/cacert.pem"), base)
    try:
        bundle = base.read_text() + "\n" + Path(extra_ca).read_text()
    except OSError as problem:
        raise PytorchError(
            f"the certificates in {problem.filename} cannot be read ({problem.strerror})",
            "See pytorch_extra_ca",
        ) from None
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(bundle)
        file.flush()
        yield {"PIP_CERT": file.name}


def ask_python(python: str) -> tuple[str, bool]:
    """Its version as "3.12", and whether it can make a virtual environment with pip in it."""
    question = (
        "import sys, importlib.util as u;print('%d.%d' % sys.version_info[:2], u.find_spec('ensurepip') is not None)"
    )
    command = [python, "-I", "-S", "-c", question]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as problem:
        raise PytorchError(f"{python} does not run ({problem})", "Set pytorch_python to a Python of the node") from None
    version, ensurepip = done.stdout.split()
    return version, ensurepip == "True"


def wish_of(params: dict[str, Any], python: str) -> domain.Wish:
    asked = {name: params[name] for name in ("torch_version", "variant", "gpus", "packages")}
    return domain.make_wish(python=python, **asked)


def sources_of(wish: domain.Wish, params: dict[str, Any]) -> list[list[str]]:
    where = {name: params[name] for name in ("index_url", "extra_index_urls", "find_links", "offline_dir")}
    sources: list[list[str]] = domain.pip_sources(wish.variant, **where)
    return sources


def findings_of(node: str, wish: domain.Wish, look: dict[str, Any]) -> list[Finding]:
    return [Finding(node=node, **finding) for finding in domain.judge(wish, look)]


def told(look: dict[str, Any], looked_as: str) -> dict[str, Any]:
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
    wish = wish_of(params, look.get("python", "3.10"))
    findings = findings_of(params["node"], wish, look)
    result = {
        "changed": False,
        "environment": str(root.link.resolve()),
        "torch": told(look, root.look_as.name),
        "findings": [finding.as_dict() for finding in findings],
    }
    refuse_a_bad_look(findings, result)
    return result


def manage(root: PytorchRoot, params: dict[str, Any], *, check: bool) -> dict[str, Any]:
    python, ensurepip = ask_python(params["python"])
    wish = wish_of(params, python)
    sources_of(wish, params)  # an address that cannot be used is refused in check mode too
    before = root.observe(wish, params["keep"])
    plan = domain.plan(wish, before, params["keep"])
    result: dict[str, Any] = {"changed": plan.changed, "environment": str(root.envs / plan.target)}
    look: dict[str, Any] = {}

    if plan.changed and not check:
        if plan.build and not ensurepip:
            raise PytorchError(
                f"{params['python']} cannot make a virtual environment: python3-venv is missing",
                "Run the baseline first: ansible-playbook site.yml --tags baseline",
            )
        root.prepare()
        with root.lock(params["lock_timeout"]) as lock:
            # Whoever held the lock may have done the work.
            before = root.observe(wish, params["keep"])
            plan = domain.plan(wish, before, params["keep"])
            result |= {"changed": plan.changed, "environment": str(root.envs / plan.target)}
            for name in plan.discard:
                root.remove(name)
            if plan.build:
                root.build(plan.target, wish, params, lock)
            look = root.look(root.envs / plan.target, "import")
            findings = findings_of(params["node"], wish, look)
            done = plan.build or bool(plan.discard)
            refuse_a_bad_look(findings, {"changed": done, "findings": [f.as_dict() for f in findings]})
            if plan.switch:
                root.switch(plan.target)
            for name in plan.retire:
                root.remove(name)
    elif not plan.build:
        full = params["full_look"]
        look = root.look(root.envs / plan.target, "import") if full else root.looks[plan.target]

    result["plan"] = {
        "reasons": list(plan.reasons),
        "build": plan.target if plan.build else "",
        "switch": plan.switch,
        "remove": [*plan.discard, *plan.retire],
    }
    result["diff"] = difference(wish, before, plan)
    findings = findings_of(params["node"], wish, look) if look else []
    result |= {
        "torch": told(look, root.look_as.name),
        "findings": [finding.as_dict() for finding in findings],
    }
    refuse_a_bad_look(findings, result)
    return result


def difference(wish: domain.Wish, before: domain.Observed, plan: domain.Plan) -> dict[str, str]:
    was = before.environments.get(before.current) or domain.Environment()
    wanted = {pin.name: pin.version for pin in wish.requirements} if plan.changed else was.packages
    gone = {*plan.discard, *plan.retire}
    after = ({*before.environments} | {plan.target}) - gone
    return {
        "before": domain.describe(wish, before.current or before.link, was.packages, list(before.environments)),
        "after": domain.describe(wish, plan.target, wanted, sorted(after)),
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "root": {"type": "path", "required": True},
            "mode": {"type": "str", "choices": ["manage", "verify"], "default": "manage"},
            "torch_version": {"type": "str", "required": True},
            "variant": {"type": "str", "default": "auto"},
            "gpus": {"type": "int", "default": 0},
            "packages": {"type": "list", "elements": "str", "default": []},
            "python": {"type": "path", "default": "/usr/bin/python3"},
            "user": {"type": "str", "default": "nobody"},
            "index_url": {"type": "str", "default": "auto"},
            "extra_index_urls": {"type": "list", "elements": "str", "default": []},
            "find_links": {"type": "list", "elements": "str", "default": []},
            "extra_ca": {"type": "path", "default": ""},
            "offline_dir": {"type": "path", "default": ""},
            "keep": {"type": "int", "default": 1},
            "full_look": {"type": "bool", "default": False},
            "lock_timeout": {"type": "int", "default": 900},
        },
        supports_check_mode=True,
    )
    params = module.params
    # Every user of the node may read the environment, whatever umask root has.
    os.umask(0o022)
    try:
        root = PytorchRoot(params["root"], LookedAs.choose(params["user"]))
        verifies = params["mode"] == "verify"
        result = verify(root, params) if verifies else manage(root, params, check=module.check_mode)
    except domain.WishError as problem:
        module.fail_json(msg=f"{params['node']}: {problem}")
    except PytorchError as problem:
        module.fail_json(msg=f"{params['node']}: {problem}", **problem.more)
    except OSError as problem:
        module.fail_json(msg=f"{params['node']}: {problem.filename}: {problem.strerror}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
