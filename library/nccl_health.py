#!/usr/bin/python
"""Says whether a node would run a job of NCCL or Gloo, and why not."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_health
short_description: Say whether this node would run a job of NCCL or Gloo, and why not
version_added: "0.1.0"
description:
  - Looks at GPUs, NVLink and the driver; at the torch and the NCCL that a launch really loads; at RDMA and Ethernet
    links, their counters, and GPUDirect; at the bus (ACS, IOMMU, link widths).
  - Looks at limits, shared memory and the environment from inside a systemd unit like that of a launch, as the training
    user.
  - Looks at disk, clock, and the kernel's log (Xid, SXid, AER, memory, disks); at nccl.conf, ranks left behind, who
    holds the port of the rendezvous, and ports that container engines publish past the firewall.
  - A sick node never makes it fail. What it found is returned, each with the words that fix it; docs/findings.md
    lists everything that it can find.
  - The node only looks; the controller judges what was seen, and keeps of it what is returned here.
  - Needs no particular rights. What only root may see, what needs a tool that is not there, and what does not matter on
    this node is skipped, with the reason. Every program that it runs has a time-out.
  - What a Muster launch of its own does on the node is no fault.
options:
  node:
    description: Name of the node in the inventory.
    type: str
    required: true
  user:
    description: Name of the training user, as whom a launch's unit runs.
    type: str
    required: true
  address:
    description: Training address of the node.
    type: str
    required: true
  interface:
    description: Training interface of the node. Empty means the one that has O(address).
    type: str
    default: ""
  gpus:
    description: How many GPUs a launch uses here.
    type: int
    default: 0
  gpu_model:
    description: Model of the GPUs, as the inventory has it. Empty means whatever is there.
    type: str
    default: ""
  nproc:
    description: How many ranks a launch has here.
    type: int
    default: 1
  torchrun:
    description: Path of the torchrun that a launch starts.
    type: str
    required: true
  backend:
    description: What the ranks of a launch talk with.
    type: str
    choices: [gloo, nccl]
    default: gloo
  port:
    description: Port of the rendezvous.
    type: int
    default: 29500
  head:
    description: Whether this is the head node, on which O(port) must be free.
    type: bool
    default: false
  run_root:
    description: Folder in which launches keep their logs.
    type: str
    default: /var/lib/muster/launches
  code:
    description: Paths of the code that jobs run, which must be the same on every node.
    type: list
    elements: str
    default: []
  collective:
    description:
      - Whether all ranks of the node do a short all-reduce, in a unit like that of a launch. It takes some seconds,
        and GPUs that nobody else uses.
    type: bool
    default: false
  allow:
    description: >-
      Entries of the firewall that let everybody reach a port (firewall_allow). Publishing those is no finding.
    type: list
    elements: dict
    default: []
  shares:
    description: Folders of a file server that are to be mounted (shared_data_mounts).
    type: list
    elements: dict
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
- name: Look at the node as a launch will find it
  nccl_health:
    node: "{{ inventory_hostname }}"
    user: muster
    address: 10.0.0.11
    gpus: 8
    nproc: 8
    torchrun: /opt/muster/pytorch/current/bin/torchrun
    backend: nccl
    head: true
  become: true
  register: __look
"""

RETURN = r"""
facts:
  description: >-
    What was seen, by subject: C(system), C(unit) (from inside a unit), C(gpu), C(driver), C(ethernet), C(rdma), C(pci),
    C(kernel_log), C(host), C(disk), C(clock), C(environment), C(jobs), C(ras), C(code), C(collective), C(mounts).
  returned: always
  type: dict
traits:
  description: >-
    What must be equal on every node, as short values: C(os), C(kernel), C(python), C(driver), C(cuda), C(torch),
    C(nccl), C(gpu_model), C(vbios), C(hca_firmware), C(rdma_ports), C(ib_subnets), C(ib_managers),
    C(ib_partitions), C(roce_mtu), C(mtu), C(link_speed), C(environment), C(nccl_conf), C(code).
    None where it is not known, or does not matter.
  returned: always
  type: dict
findings:
  description: "What was found: C(id), C(status), C(summary), C(fix) and more; a single C(pass) when nothing was."
  returned: always
  type: list
  elements: dict
verdict:
  description: >-
    The findings added up: C(status), C(summary), and in C(coverage) the ids that were looked for (C(ran)) and those
    that were not, each with C(why) (C(skipped)).
  returned: always
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.launch.unit import unit_properties
from ansible.module_utils.muster_node.looks.health import OPTIONS, look
from ansible.module_utils.muster_node.tools.transfer import encode

# Nothing in these units needs to be asked twice to end.
STOP_TIMEOUT = 5


def main() -> None:
    """Look; plugins/action/nccl_health.py judges what comes back, and returns what is documented above."""
    module = AnsibleModule(OPTIONS, supports_check_mode=True)
    looks = look(module.params, unit_properties(module.params["user"], "/", STOP_TIMEOUT))
    module.exit_json(changed=False, looks=encode(looks))


if __name__ == "__main__":
    main()
