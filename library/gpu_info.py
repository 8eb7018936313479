#!/usr/bin/python
"""Gathers facts about the GPUs of a node, without changes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_info
short_description: Gather facts about the NVIDIA GPUs of a node
version_added: "0.1.0"
description:
  - Reads the PCI bus, the driver, the fabric manager, and the output of C(nvidia-smi) for all GPUs, the topology and
    all NVLinks. M(nccl_health) evaluates the facts.
  - Requires no privileges. Only root can see other users' processes that use the devices, and the fabric manager log.
    Missing information is reported and is never an error.
  - Runs C(nvidia-smi) only if the driver is loaded, because C(nvidia-smi) would load the driver. A hanging
    C(nvidia-smi) is reported and left running.
options:
  seconds:
    description: >-
      Time in seconds after which C(nvidia-smi) is considered hung. Eight GPUs without persistence
      mode take about half of the default time.
    type: float
    default: 30.0
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Same behaviour as without check mode.}
  diff_mode: {support: none, description: "Changes nothing, so there is no diff."}
  idempotent: {support: full, description: Changes nothing.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Gather GPU facts
  gpu_info:
  register: __gpus

- name: Show the slot of each GPU
  ansible.builtin.debug:
    msg: "{{ __gpus.facts.gpus | map(attribute='name') | zip(__gpus.facts.gpus | map(attribute='slot')) }}"
"""

RETURN = r"""
facts:
  description: Gathered facts. Unavailable values are null, with the reason in C(skipped).
  returned: always
  type: dict
  contains:
    uptime: {description: Seconds since boot., type: float, returned: always}
    container: {description: Container type. Empty outside of containers., type: str, returned: always}
    virtual:
      description: Virtual machine type of the node. Empty if the node is not a virtual machine.
      type: str
      returned: always
    bus:
      description: >-
        All GPUs on the PCI bus, with or without a driver: slot, id, class, name, driver, whether the GPU responds, NUMA
        node, link (speed and width, with the maxima of GPU and slot), and PCIe error counters (aer).
      type: list
      elements: dict
      returned: always
    nvswitches: {description: Number of NVSwitches on the PCI bus., type: int, returned: always}
    driver:
      description: >-
        Versions of the loaded module (loaded), of libnvidia-ml (library) and of the module on disk (on_disk), whether
        the module is the open one, and the newest supported CUDA version.
      type: dict
      returned: always
    smi:
      description: >-
        Result of running C(nvidia-smi): status (ok, not_run, missing, hangs, mismatch, no_driver, failed, unreadable),
        why, exit status (code), seconds, additional output (notes), number of characters after which the output was
        truncated (cut), unreachable GPUs (lost by index, lost_slots by PCI slot), and queries without a response
        (hung).
      type: dict
      returned: always
    gpus:
      description: >-
        All GPUs that the driver lists, with name, uuid, slot, memory, ECC, remapped rows, PCIe link, clocks, power,
        temperatures, clock throttle reasons and times, values that could not be read (unreadable), MIG, persistence
        mode, fabric state, processes with owner and age, and NVLinks.
      type: list
      elements: dict
      returned: always
    missing:
      description: Slots of GPUs that are on the PCI bus but not listed by the driver.
      type: list
      elements: str
      returned: always
    topology:
      description: Paths between GPUs and network adapters, and the processors local to each GPU.
      type: dict
      returned: always
    fabric_manager: {description: "Its unit, version and errors, or null.", type: dict, returned: always}
    imex: {description: State of the unit nvidia-imex. Empty if there is none., type: str, returned: always}
    holders:
      description: Processes that have a driver file open, except the daemons that keep the driver loaded.
      type: list
      elements: dict
      returned: always
    holders_all: {description: Whether processes of all users were visible., type: bool, returned: always}
    skipped: {description: "Information that could not be gathered, with the reason.", type: dict, returned: always}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.gpu_info.facts import facts
from ansible.module_utils.muster_node.looks import gpu


def main() -> None:
    module = AnsibleModule(
        {"seconds": {"type": "float", "default": gpu.SECONDS}},
        supports_check_mode=True,
    )
    if module.params["seconds"] <= 0:
        module.fail_json(msg="seconds (the time limit of nvidia-smi) must be greater than 0")
    module.exit_json(changed=False, facts=facts(gpu.look(module.params["seconds"])))


if __name__ == "__main__":
    main()
