#!/usr/bin/python
"""Tells what GPUs a node has, and changes nothing."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_info
short_description: Tell what NVIDIA GPUs a node has and what state they are in
version_added: "0.1.0"
description:
  - Reads the PCI bus, the driver, the fabric manager, and what C(nvidia-smi) says of every GPU, of the topology and of
    every NVLink. Nothing is judged; that is done by M(nccl_health).
  - Needs no particular rights. Only root is told who has the devices of others open, and may read the fabric manager's
    log; what cannot be looked at is said, and is never an error.
  - C(nvidia-smi) is asked only while the driver is loaded, which it would load otherwise. One that hangs is told and
    left where it is.
options:
  seconds:
    description: Time after which C(nvidia-smi) counts as hanging. Eight GPUs without persistence need half of that.
    type: float
    default: 30.0
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Does and returns the same as without it.}
  diff_mode: {support: none, description: "Changes nothing, so there is nothing to show."}
  idempotent: {support: full, description: Changes nothing.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Look at the GPUs
  gpu_info:
  register: __gpus

- name: Show which GPU is where
  ansible.builtin.debug:
    msg: "{{ __gpus.facts.gpus | map(attribute='name') | zip(__gpus.facts.gpus | map(attribute='slot')) }}"
"""

RETURN = r"""
facts:
  description: What was seen. Whatever could not be had is null, and C(skipped) says why.
  returned: always
  type: dict
  contains:
    uptime: {description: Seconds since the boot., type: float, returned: always}
    container: {description: "The kind of container that the node is, or an empty string.", type: str, returned: always}
    virtual:
      description: The kind of virtual machine that the node is, or an empty string.
      type: str
      returned: always
    bus:
      description: >-
        Every GPU on the PCI bus, driver or not: slot, id, class, name, driver, whether it answers, numa node, link
        (speed, width, what they could be, and what the slot could), and the error counts of the bus (aer).
      type: list
      elements: dict
      returned: always
    nvswitches: {description: How many NVSwitches are on the bus., type: int, returned: always}
    driver:
      description: >-
        Versions of the module in the kernel (loaded), of libnvidia-ml (library) and of the module on disk (on_disk),
        whether the module is the open one, and the newest CUDA that it takes.
      type: dict
      returned: always
    smi:
      description: >-
        How asking C(nvidia-smi) went: status (ok, not_run, missing, hangs, mismatch, no_driver, failed, unreadable),
        why, its exit status (code), seconds, what it said beside its answer (notes), after how many characters its
        answer ended too early (cut), and the GPUs that it could not reach (lost by their numbers, lost_slots by their
        places on the bus).
      type: dict
      returned: always
    gpus:
      description: >-
        Every GPU that the driver lists, with its name, uuid, slot, memory, ECC, remapped rows, PCIe link, clocks,
        power, temperatures, reasons for lowered clocks, MIG, persistence, fabric, processes with owner and age, and
        NVLinks.
      type: list
      elements: dict
      returned: always
    missing:
      description: Slots of GPUs that are on the bus and that the driver does not list.
      type: list
      elements: str
      returned: always
    topology:
      description: How GPUs and network adapters reach each other, and the processors near each GPU.
      type: dict
      returned: always
    fabric_manager: {description: "Its unit, version and complaints, or null.", type: dict, returned: always}
    imex: {description: "State of the unit nvidia-imex, or empty.", type: str, returned: always}
    holders:
      description: Processes that have a file of the driver open, without those that keep it ready.
      type: list
      elements: dict
      returned: always
    holders_all: {description: Whether those of all users could be seen., type: bool, returned: always}
    skipped: {description: "What could not be looked at, and why.", type: dict, returned: always}
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
        module.fail_json(msg="seconds is the time that nvidia-smi is given, and must be more than 0")
    module.exit_json(changed=False, facts=facts(gpu.look(module.params["seconds"])))


if __name__ == "__main__":
    main()
