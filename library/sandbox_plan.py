#!/usr/bin/python
"""Inspects this machine, and plans the steps that create the sandbox described in the inventory."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sandbox_plan
short_description: Plan the changes that the sandbox requires
version_added: "0.1.0"
description:
  - Inspects podman, the routes, the disk, and the pip and apt settings of this machine, and changes nothing.
  - Fails with a reason if this machine cannot run the sandbox.
  - If an interrupted run left an image build running, waits until the build has finished.
options:
  name:
    description: Name of the sandbox and of its network. Containers are named C(<name>-<node>).
    type: str
    required: true
  checkout:
    description: Path of the checkout that the sandbox belongs to.
    type: path
    required: true
  state:
    description: State of the sandbox. V(absent) requires only O(name) and O(checkout).
    type: str
    choices: [present, absent]
    default: present
  nodes:
    description: Address of each machine, by name.
    type: dict
    default: {}
  lock:
    description: Folder that is locked during an image build.
    type: path
  subnet:
    description: Subnet of the sandbox network.
    type: str
  base:
    description: Base image, as in O(sandbox_base) of the role sandbox.
    type: str
  recipe:
    description: Folder with the files to build the image.
    type: path
  public_key:
    description: Public key file of the administrator.
    type: path
  node_ca:
    description: Path on the nodes for a copy of the CA certificates that pip trusts on this machine.
    type: path
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Never changes anything.}
  diff_mode: {support: none, description: Changes nothing.}
author: The Muster authors
"""

EXAMPLES = r"""
- name: Plan the sandbox
  sandbox_plan:
    name: muster
    checkout: /srv/muster
    nodes: {node1: 10.203.77.11, node2: 10.203.77.12}
    subnet: 10.203.77.0/24
    base: auto
    recipe: roles/sandbox/files/node
    public_key: .sandbox/id_ed25519.pub
    node_ca: /etc/controller-ca.crt
"""

RETURN = r"""
build: {description: Whether the image must be built., type: bool, returned: always}
network: {description: Whether the network must be created., type: bool, returned: always}
remove_network: {description: Whether the old network must be removed first., type: bool, returned: always}
machines: {description: Whether the network or a machine differs from the request., type: bool, returned: always}
remove: {description: "Containers to remove, with the reason.", type: dict, returned: always}
removal: {description: "Containers to remove and reasons, as one line.", type: str, returned: always}
start: {description: Stopped nodes to start., type: list, returned: always}
create: {description: Command to create each new node., type: dict, returned: always}
image: {description: Name of the image., type: str, returned: when state=present}
outcome: {description: "State after the playbook has finished, as one line.", type: str, returned: always}
apt_settings: {description: apt settings that the nodes require., type: str, returned: always}
certificates:
  description: CA certificates that the administrator of this machine has added.
  type: list
  returned: always
node_variables:
  description: Variables that apply the pip settings of this machine to the nodes.
  type: dict
  returned: always
"""

import dataclasses
import fcntl
import hashlib
import json
import os
import resource
import shutil
import sys
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.sandbox import plan as sandbox

_LIMITS = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
# Devices with which a node mounts file systems of other nodes, and mounts them on first use.
_DEVICES = ("/dev/fuse", "/dev/autofs")
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy")


class Host:
    """Inspects this machine with the tools installed on it."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module

    def output(self, *command: str) -> str:
        """Return the output of a command. A failed command fails the module."""
        out: str = self.module.run_command(list(command), check_rc=True)[1]
        return out

    def json(self, *command: str) -> list[dict[str, Any]]:
        """Run a command that prints a JSON list, and return the list."""
        found: list[dict[str, Any]] = json.loads(self.output(*command) or "[]") or []
        return found

    def ulimits(self) -> list[str]:
        """Return the resource limits that podman can set for a node with the privileges of the calling user."""
        found: list[str] = sandbox.ulimits({name: resource.getrlimit(which)[1] for name, which in _LIMITS.items()})
        return found

    def apt_settings(self) -> str:
        """Return apt's settings for accessing package sources, if this machine has apt."""
        found: str = sandbox.apt_settings(self.output("apt-config", "dump")) if shutil.which("apt-config") else ""
        return found

    def pip_settings(self) -> dict[str, str]:
        """Return pip's settings on this controller."""
        found: dict[str, str] = sandbox.pip_settings(self.output(sys.executable, "-m", "pip", "config", "list"))
        return found

    def found(self, image: str) -> sandbox.SandboxFacts:
        """Return all facts that the plan depends on."""
        containers = self.json("podman", "ps", "--all", "--format", "json")
        networks = self.json("podman", "network", "ls", "--format", "json")
        owners = {sandbox.labels(thing).get(sandbox.LABEL_CHECKOUT, "") for thing in [*containers, *networks]}
        storage = self.output("podman", "info", "--format", "{{.Store.GraphRoot}}").strip()
        return sandbox.SandboxFacts(
            containers=containers,
            networks=networks,
            routes=self.json("ip", "-json", "-4", "route"),
            checkouts={owner for owner in owners if Path(owner).is_dir()},
            image=self.module.run_command(["podman", "image", "exists", image])[0] == 0,
            free_mb=shutil.disk_usage(storage).free // 10**6,
        )


def digest(parts: list[str | bytes]) -> str:
    """Return a short digest of all inputs of the image build."""
    whole = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        whole.update(b"%d:" % len(content) + content)
    return whole.hexdigest()[:12]


def present(module: AnsibleModule, host: Host) -> tuple[sandbox.SandboxPlan, dict[str, Any]]:
    """Return the plan of the sandbox, and the state on which the plan is based."""
    given = module.params
    pip = host.pip_settings()
    variables, folders = sandbox.node_pip_variables(pip, given["node_ca"])
    volumes = [f"{folder}:{folder}:ro" for folder in folders if Path(folder).is_dir()]
    if "pytorch_extra_ca" in variables:
        volumes.append(f"{pip['cert']}:{given['node_ca']}:ro")

    settings = host.apt_settings()
    certificates = sorted(Path("/usr/local/share/ca-certificates").glob("*.crt"))
    contents = [path.read_bytes() for path in [*certificates, *sorted(Path(given["recipe"]).iterdir())]]
    image = f"localhost/muster-node:{digest([given['base'], settings, *contents])}"

    wanted = sandbox.SandboxRequest(
        name=given["name"],
        checkout=given["checkout"],
        subnet=given["subnet"],
        image=image,
        nodes=given["nodes"],
        admin_key=Path(given["public_key"]).read_text(encoding="utf-8").strip(),
        volumes=volumes,
        environment={name: value for name, value in os.environ.items() if name.lower() in _PROXIES and value},
    )
    plan = sandbox.make_plan(wanted, host.found(image))
    limits, devices = host.ulimits(), [device for device in _DEVICES if Path(device).is_char_device()]
    return plan, {
        "image": image,
        "create": {
            node: sandbox.run_command(given["name"], given["checkout"], node, spec, limits, devices)
            for node, spec in plan.create.items()
        },
        "apt_settings": settings,
        "certificates": [str(path) for path in certificates],
        "node_variables": variables,
    }


def lacking() -> str:
    """Return the requirements of a sandbox that this machine does not meet, or an empty string."""
    if os.geteuid() != 0:
        return "The sandbox requires root: run the command as root."
    missing = [tool for tool in ("podman", "runc", "ip") if not shutil.which(tool)]
    return f"The sandbox requires {' and '.join(missing)}: run script/setup sandbox, or install it." if missing else ""


def wait_for(folder: Path) -> None:
    """Wait until the lock of the folder is released."""
    if folder.is_dir():
        handle = os.open(folder, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.close(handle)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "checkout": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "nodes": {"type": "dict", "default": {}},
            "lock": {"type": "path"},
            "subnet": {"type": "str"},
            "base": {"type": "str"},
            "recipe": {"type": "path"},
            "public_key": {"type": "path"},
            "node_ca": {"type": "path"},
        },
        required_if=[("state", "present", ("nodes", "subnet", "base", "recipe", "public_key", "node_ca"))],
        supports_check_mode=True,
    )
    given = module.params
    lacks = lacking()
    if lacks:
        module.fail_json(msg=lacks)
    if given["lock"]:
        wait_for(Path(given["lock"]))
    host = Host(module)
    made_from: dict[str, Any] = {}
    if given["state"] == "present":
        plan, made_from = present(module, host)
    else:
        plan = sandbox.plan_end(given["name"], given["checkout"], host.found(""))
    if plan.refusal:
        module.fail_json(msg=plan.refusal)
    module.exit_json(
        changed=False,
        removal=plan.removal,
        machines=plan.machines,
        outcome=sandbox.outcome(given["name"], len(given["nodes"])),
        **{**dataclasses.asdict(plan), **made_from},
    )


if __name__ == "__main__":
    main()
