#!/usr/bin/python
"""Looks at a node and changes nothing."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_inspect
short_description: Look at a machine that may become a node, and change nothing
version_added: "0.1.0"
description:
  - Looks at the system, the accounts, the GPUs on the bus, Secure Boot, addresses and routes, listening sockets, the
    firewall in force, the clock, what is being installed, the room on disk, the GPU stack, environments of conda, mamba
    and pixi, and what of Muster is there already.
  - Reads files, and asks programs that only show something, each with a time-out. Needs no particular rights. What
    cannot be looked at is said, and is never an error.
  - What it means is decided by M(inspect_verdict).
options:
  only:
    description:
      - What to look at, for who needs no more. C(system) is always looked at, and C(clock) needs C(services) beside it.
      - Empty looks at everything.
    type: list
    elements: str
    choices: [system, users, pci, boot, network, listeners, clock, services, packages, disk, stack, rdma, environments]
    default: []
  user:
    description: Name of the training user. Required where C(users) or C(environments) is looked at.
    type: str
    default: ""
  peers:
    description: Training addresses of the nodes, to which the kernel is asked for the way.
    type: list
    elements: str
    default: []
  paths:
    description: Paths that will be written, for the room on their file systems.
    type: list
    elements: str
    default: []
  prefixes:
    description: Environments that the inventory names by their paths, for what made them and what is in them.
    type: list
    elements: str
    default: []
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Does and returns the same as without it.}
  diff_mode: {support: none, description: "Changes nothing, so there is nothing to show."}
  idempotent: {support: full, description: Changes nothing.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Look at the node
  node_inspect:
    user: muster
    peers: [10.0.0.11, 10.0.0.12]
    paths: [/opt/muster/pytorch, /var/lib/muster/launches]
    prefixes: [/opt/miniconda3/envs/train]
  register: __look

- name: Look at what the GPU stack depends on
  node_inspect:
    only: [system, pci, boot, packages, stack, rdma]
  register: __look
"""

RETURN = r"""
facts:
  description: >-
    What was seen, by subject (C(system), C(identity), C(users), C(gpus), C(secure_boot), C(network), C(listeners),
    C(firewall), C(clock), C(services), C(packages), C(disk), C(stack), C(rdma), C(environments)), as far as
    it was looked at; and under C(skipped) why something was not.
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
        module.fail_json(msg="user is required where users or environments is looked at")
    module.exit_json(changed=False, facts=facts(look_at(wanted)))


if __name__ == "__main__":
    main()
