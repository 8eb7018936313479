#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Removes NVIDIA's driver from a node that leaves the cluster, after a simulation with apt."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver_removal
short_description: Remove the NVIDIA driver from a node
version_added: "0.2.0"
description:
  - Purges all packages of the driver from any source. CUDA libraries, NCCL, the container toolkit and the repositories
    are kept.
  - Fails without changes if apt would remove a package that is not part of the driver. Run M(wipe_node) first.
  - A driver installed from an NVIDIA runfile is kept, and the path of its uninstaller is reported.
options:
  node: {description: "Name of the node, used in messages.", type: str, required: true}
extends_documentation_fragment: [role_options.debian, action_common_attributes]
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Remove the driver
  nvidia_driver_removal:
    node: "{{ inventory_hostname }}"
  become: true
"""

RETURN = r"""
gone: {description: Packages that were or would be removed., returned: success, type: list, elements: str}
msg: {description: Manual steps after the removal., returned: when there are manual steps, type: str}
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.inspect.stack import packages_of
from ansible.module_utils.muster.nvidia_driver.apt import AptSimulation, complaints, fix_with, parse
from ansible.module_utils.muster.nvidia_driver.removal import parts, refusals, remark
from ansible.module_utils.muster_node.looks.stack import INSTALLER, show_packages
from ansible.module_utils.muster_node.packages.apt import apt_get

PURGE = ("purge", "--yes", "--allow-change-held-packages")


def run(module: AnsibleModule) -> dict[str, Any]:
    node = module.params["node"]
    there = packages_of(show_packages().text)
    names = parts(there)
    wrong = refusals(simulated(names)) if names else []
    if wrong:
        module.fail_json(msg=f"{node}: the driver was not removed: {'. '.join(wrong)}. Nothing was changed.")
    if names and not module.check_mode:
        done = apt_get(*PURGE, "--", *names)
        if done.returncode:
            said = complaints(done.stdout + done.stderr)
            module.fail_json(msg=f"{node}: apt-get failed ({done.returncode}). {fix_with(said)}. Output:\n{said}")
    runfile = [path for path in INSTALLER if Path(path).exists()]
    said = remark(runfile, loaded=bool(names) and Path("/sys/module/nvidia").exists())
    before = "".join(f"{name} {there[name]['version']}\n" for name in names)
    result = {"changed": bool(names), "gone": names, "diff": {"before": before, "after": ""}}
    return {**result, "msg": f"{node}: {said}."} if said else result


def simulated(names: list[str]) -> AptSimulation:
    asked = apt_get("--simulate", *PURGE, "--", *names)
    answer: AptSimulation = parse(asked.stdout, asked.stderr, asked.returncode)
    return answer


def main() -> None:
    module = AnsibleModule({"node": {"type": "str", "required": True}}, supports_check_mode=True)
    module.exit_json(**run(module))


if __name__ == "__main__":
    main()
