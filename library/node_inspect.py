#!/usr/bin/python
"""Inspects a node, without changes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_inspect
short_description: Inspect a machine before it becomes a node, without changing it
version_added: "0.1.0"
description:
  - Inspects the system, the accounts, the GPUs on the PCI bus, Secure Boot, addresses and routes, listening sockets,
    the active firewall, the clock, running package installations, disk space, the GPU stack, environments of conda,
    mamba and pixi, and existing Muster files.
  - Reads files and runs read-only commands, each with a timeout. Requires no privileges. Missing information is
    reported and is never an error.
  - M(inspect_verdict) evaluates the result.
options:
  only:
    description:
      - Subjects to inspect. C(system) is always included. C(clock) requires C(services).
      - If empty, all subjects are inspected.
    type: list
    elements: str
    choices: [system, users, pci, boot, network, listeners, clock, services, packages, disk, stack, rdma, environments]
    default: []
  user:
    description: Name of the training user. Required for the subjects C(users) and C(environments).
    type: str
    default: ""
  peers:
    description: Training addresses of the other nodes, to check the kernel's routes to them.
    type: list
    elements: str
    default: []
  paths:
    description: Paths that Muster will write to, to check the free space of their file systems.
    type: list
    elements: str
    default: []
  prefixes:
    description: Paths of the environments in the inventory, to detect their contents and the tool that created them.
    type: list
    elements: str
    default: []
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Same behaviour as without check mode.}
  diff_mode: {support: none, description: "Changes nothing, so there is no diff."}
  idempotent: {support: full, description: Changes nothing.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Inspect the node
  node_inspect:
    user: muster
    peers: [10.0.0.11, 10.0.0.12]
    paths: [/opt/muster/pytorch, /var/lib/muster/launches]
    prefixes: [/opt/miniconda3/envs/train]
  register: __look

- name: Inspect the requirements of the GPU stack
  node_inspect:
    only: [system, pci, boot, packages, stack, rdma]
  register: __look
"""

RETURN = r"""
facts:
  description: >-
    Gathered facts by inspected subject (C(system), C(identity), C(users), C(gpus), C(secure_boot), C(network),
    C(listeners), C(firewall), C(clock), C(services), C(packages), C(disk), C(stack), C(rdma), C(environments)).
    C(skipped) has the reasons for missing information.
  returned: always
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.inspect.facts import facts
from ansible.module_utils.muster_node.looks.inspect import SUBJECTS, look_at


def main() -> None:
    module = AnsibleModule(
        {
            "only": {"type": "list", "elements": "str", "choices": list(SUBJECTS), "default": []},
            "user": {"type": "str", "default": ""},
            "peers": {"type": "list", "elements": "str", "default": []},
            "paths": {"type": "list", "elements": "str", "default": []},
            "prefixes": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    if {"users", "environments"} & set(wanted["only"] or SUBJECTS) and not wanted["user"]:
        module.fail_json(msg="user is required for the subjects users and environments")
    module.exit_json(changed=False, facts=facts(look_at(wanted)))


if __name__ == "__main__":
    main()
