#!/usr/bin/python
"""Checks whether a node can run an NCCL or Gloo job."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_health
short_description: Check whether a node can run an NCCL or Gloo job
version_added: "0.1.0"
description:
  - Checks the GPUs, NVLink and the driver, the torch and NCCL libraries that a launch loads, the RDMA and Ethernet
    links with their counters, GPUDirect, and the PCI bus (ACS, IOMMU, link widths).
  - Checks limits, shared memory and the environment as the training user, in a systemd unit with a launch's settings.
  - Checks the disk, the clock, the kernel log (Xid, SXid, AER, memory, disks), nccl.conf, leftover ranks, the owner of
    the rendezvous port, and ports that container engines publish in a way that bypasses the firewall.
  - If the node is faulty, the module does not fail, but returns findings with fixes. docs/findings.md lists all
    findings.
  - The node only gathers data. The controller evaluates the data and returns the result described here.
  - Requires no privileges. If a check needs root, needs a missing tool or does not apply to the node, the check is
    skipped with a reason. All programs run with a timeout.
  - Resources in use by running Muster launches are not reported as a fault.
options:
  user:
    description: Training user, which runs the units of launches.
    type: str
    required: true
  address:
    description: Training address of the node.
    type: str
    required: true
  interface:
    description: Training interface of the node. If empty, the interface that has O(address) is used.
    type: str
    default: ""
  gpus:
    description: Number of GPUs that a launch uses on this node.
    type: int
    default: 0
  gpu_model:
    description: GPU model in the inventory. If empty, any model is accepted.
    type: str
    default: ""
  nproc:
    description: Number of ranks of a launch on this node.
    type: int
    default: 1
  torchrun:
    description: Path of the torchrun that a launch starts.
    type: str
    required: true
  backend:
    description: Communication backend of a launch.
    type: str
    choices: [gloo, nccl]
    default: gloo
  port:
    description: Rendezvous port.
    type: int
    default: 29500
  head:
    description: Whether this node is the head node, on which O(port) must be free.
    type: bool
    default: false
  run_root:
    description: Folder for launch logs.
    type: str
    default: /var/lib/muster/launches
  code:
    description: Paths of user code that must be identical on all nodes.
    type: list
    elements: str
    default: []
  collective:
    description:
      - Runs a short all-reduce on all ranks of the node, in a unit with the same settings as the unit of a launch.
        Takes several seconds and requires idle GPUs.
    type: bool
    default: false
  allow:
    description: Firewall entries (C(firewall_allow)) that open a port to all hosts. Containers can publish these ports.
    type: list
    elements: dict
    default: []
  shares:
    description: Folders of a file server that must be mounted (C(shared_data_mounts)).
    type: list
    elements: dict
    default: []
extends_documentation_fragment: [action_common_attributes, role_options.node]
attributes:
  check_mode: {support: full, description: Same behaviour as without check mode.}
  diff_mode: {support: none, description: "Changes nothing, so there is no diff."}
  idempotent: {support: full, description: Changes nothing.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Check the node
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
    Gathered facts by subject: C(system), C(unit) (inside a unit), C(gpu), C(driver), C(ethernet), C(rdma), C(pci),
    C(kernel_log), C(host), C(disk), C(clock), C(environment), C(jobs), C(ras), C(code), C(collective), C(mounts).
  returned: always
  type: dict
traits:
  description: >-
    Values that must be equal on all nodes: C(os), C(kernel), C(python), C(driver), C(cuda), C(torch), C(nccl),
    C(gpu_model), C(vbios), C(gpu_inforom), C(gpu_memory_size), C(gpu_bar1_size), C(gpu_power_limit),
    C(gpu_highest_clock), C(gpu_pcie_generation), C(gpu_ecc), C(gpu_nvlinks), C(hca_firmware), C(rdma_ports),
    C(ib_subnets), C(ib_managers), C(ib_partitions), C(roce_mtu), C(mtu), C(link_speed), C(environment), C(nccl_conf),
    C(code). Unknown or irrelevant values are null.
  returned: always
  type: dict
findings:
  description: >-
    Findings with C(id), C(status), C(summary), C(fix) and other keys. A single C(pass) finding if there are none.
  returned: always
  type: list
  elements: dict
verdict:
  description: >-
    Summary of the findings: C(status), C(summary), and in C(coverage) the ids that were checked (C(ran)) and the ids
    that were skipped (C(skipped)), each with a reason (C(why)).
  returned: always
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.launch.unit import unit_properties
from ansible.module_utils.muster_node.looks.health import OPTIONS, look
from ansible.module_utils.muster_node.tools.transfer import encode

# The processes in these units end on the first signal.
STOP_TIMEOUT = 5


def main() -> None:
    """Gather the data, which plugins/action/nccl_health.py evaluates to return the documented result."""
    module = AnsibleModule(OPTIONS, supports_check_mode=True)
    looks = look(module.params, unit_properties(module.params["user"], "/", STOP_TIMEOUT))
    module.exit_json(changed=False, looks=encode(looks))


if __name__ == "__main__":
    main()
