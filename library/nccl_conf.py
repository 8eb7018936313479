#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Manages /etc/nccl.conf: writes only the settings that the node's interfaces require."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_conf
short_description: Manage the NCCL settings of a node in /etc/nccl.conf
version_added: "0.1.0"
description:
  - Detects which interfaces NCCL would select and to which fabrics the RDMA devices of the node belong. Writes a block
    to C(/etc/nccl.conf) only if NCCL could select a wrong device. A node with a simple network gets no file.
  - Other lines are kept byte for byte. Debug settings, and lines that NCCL cannot parse, are reported.
  - The block sets C(NCCL_SOCKET_IFNAME) either to the interface that launches set in their environment, or not at all.
author: The Muster authors
options:
  mode:
    description: Mode of the module. V(manage) writes the file if it differs. V(verify) fails on differences.
    type: str
    choices: [manage, verify]
    default: manage
  conf:
    description: Settings to write, as V(auto), V(off) or a mapping from variables to values.
    type: raw
    default: auto
  interface:
    description: Training interface. If empty, the interface that has O(address) is used.
    type: str
    default: ""
  address:
    description: Training address of the node.
    type: str
    default: ""
  hca:
    description: RDMA adapters for NCCL. If empty, the adapters of the fastest fabric are used.
    type: list
    elements: str
    default: []
  gid_index:
    description: GID index for RoCE. If empty, NCCL selects the index.
    type: str
    default: ""
  pkey:
    description: InfiniBand partition key, converted to its table index. If empty, an index is set only if necessary.
    type: str
    default: ""
  traffic_class:
    description: RoCE traffic class. If empty, the adapter setting is kept.
    type: str
    default: ""
  service_level:
    description: InfiniBand service level. If empty, the adapter setting is kept.
    type: str
    default: ""
extends_documentation_fragment: [role_options.posix, action_common_attributes, role_options.node]
"""

EXAMPLES = r"""
- name: Configure NCCL
  nccl_conf:
    node: "{{ inventory_hostname }}"
    interface: "{{ cluster_interface }}"
    address: "{{ cluster_address }}"
"""

RETURN = r"""
reasons: {description: "Reasons for the settings, one sentence each.", returned: success, type: list, elements: str}
differences:
  description: Differences that were or would be applied, one sentence each.
  returned: success
  type: list
  elements: str
"""

import ipaddress
import json
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.gpu_stack import nccl_conf as domain
from ansible.module_utils.muster.gpu_stack import nccl_ib
from ansible.module_utils.muster.verdict.commands import playbook
from ansible.module_utils.muster_node.tools import files
from ansible.module_utils.muster_node.tools.result import RefusedError, diff, one_sentence, refuse, warn
from ansible.module_utils.muster_node.tools.run import names, read, run

SPEC = {
    "node": {"type": "str", "required": True},
    "mode": {"type": "str", "choices": ["manage", "verify"], "default": "manage"},
    "conf": {"type": "raw", "default": "auto"},
    "interface": {"type": "str", "default": ""},
    "address": {"type": "str", "default": ""},
    "hca": {"type": "list", "elements": "str", "default": []},
    "gid_index": {"type": "str", "default": ""},
    "pkey": {"type": "str", "default": ""},
    "traffic_class": {"type": "str", "default": ""},
    "service_level": {"type": "str", "default": ""},
}


DEVICES = "/sys/class/infiniband"
BUS = "/sys/bus/pci/devices"
FIX = f"To apply the changes, run {playbook('site.yml', tags='gpu_stack', nccl_mode='manage')}"


def look_at_interfaces() -> list[dict[str, Any]]:
    answer = run("ip", "-json", "addr")
    if answer.why:
        raise RefusedError(f"the network interfaces could not be read: {answer.why}")
    found: list[dict[str, Any]] = json.loads(answer.text)
    return [each for each in found if each.get("ifname")]


def carrier(interfaces: list[dict[str, Any]], address: str) -> str:
    """Return the interface that has the address. For a host name or an address of another machine, return ""."""
    try:
        wanted = ipaddress.ip_address(address)
    except ValueError:
        return ""
    for interface in interfaces:
        if any(ipaddress.ip_address(each["local"]) == wanted for each in interface.get("addr_info", ())):
            return str(interface["ifname"])
    return ""


def look_at_ports() -> list[nccl_ib.RdmaPort]:
    ports = []
    for device in names(DEVICES):
        slot = Path(f"{DEVICES}/{device}/device")
        for number in names(f"{DEVICES}/{device}/ports"):
            folder = f"{DEVICES}/{device}/ports/{number}"
            rate = read(f"{folder}/rate").text.split()  # 400 Gb/sec (4X NDR)
            keys = sorted(filter(str.isdigit, names(f"{folder}/pkeys")), key=int)
            ports.append(
                nccl_ib.RdmaPort(
                    device=device,
                    port=int(number),
                    active="ACTIVE" in read(f"{folder}/state").text,
                    layer=read(f"{folder}/link_layer").text.strip(),
                    prefix=read(f"{folder}/gids/0").text.strip()[:19],
                    rate=int(float(rate[0])) if rate else 0,
                    pkeys=tuple(read(f"{folder}/pkeys/{key}").text.strip() for key in keys),
                    slot=slot.readlink().name if slot.is_symlink() else "",
                )
            )
    return ports


def has_halves() -> bool:
    """Return whether the machine has a GPU of a model whose servers expose one physical network port as two
    adapters."""
    return any(
        f"{read(f'{BUS}/{slot}/vendor').text.strip()[2:]}:{read(f'{BUS}/{slot}/device').text.strip()[2:]}"
        in nccl_ib.OF_HALVES
        for slot in names(BUS)
    )


def look(interface: str, address: str) -> domain.NcclNodeFacts:
    interfaces = look_at_interfaces()
    ports = look_at_ports()
    return domain.NcclNodeFacts(
        interfaces=tuple(
            # LOWER_UP corresponds to IFF_RUNNING.
            domain.NcclInterface(each["ifname"], {"UP", "LOWER_UP"} <= {*each["flags"]} and bool(each.get("addr_info")))
            for each in interfaces
        ),
        training=interface or carrier(interfaces, address),
        ports=tuple(ports),
        halves=bool(ports) and has_halves(),
    )


def read_conf() -> str | None:
    """Return the content of nccl.conf with all bytes preserved, or None if the file is missing."""
    path = Path(domain.PATH)
    try:
        content: bytes = files.read(str(path), links=True)
    except FileNotFoundError:
        return None
    return content.decode("utf-8", "surrogateescape")


def write_conf(text: str) -> None:
    path = Path(domain.PATH)
    if path.is_symlink():
        raise RefusedError(
            f"{path} is a link to {path.readlink()}, so another tool manages the file. Replace the link with a "
            'file, or configure the settings in that tool and set nccl_conf to "off"'
        )
    if not text:
        files.remove(str(path))
        return
    files.replace(str(path), text.encode("utf-8", "surrogateescape"), mode=0o644, keep=True)


def options_of(given: dict[str, Any]) -> nccl_ib.Options:
    texts = {name: given[name] for name in ("gid_index", "pkey", "traffic_class", "service_level")}
    return nccl_ib.Options(hca=tuple(given["hca"]), **texts)


def run_module(module: AnsibleModule) -> dict[str, Any]:
    conf = module.params["conf"]
    options = options_of(module.params)
    seen = look(module.params["interface"], module.params["address"])
    wrong = [
        f"{what}. {fix}" for what, fix in (*domain.request_problems(conf), *nccl_ib.request_problems(options, conf))
    ]
    wrong += nccl_ib.problems(options, seen.ports)
    wrong += filter(None, [domain.contradiction(conf, seen.training)])
    refuse(wrong)
    before = read_conf()
    want = domain.wanted(conf, seen, options)
    after = domain.rewrite(before, want, seen.training)
    warn(module, [*after.notes, *want.undecided])
    changed = bool(after.differences)
    if module.params["mode"] == "verify":
        refuse((), after.differences, FIX)
    if changed and not module.check_mode:
        write_conf(after.text)
    return {
        "changed": changed,
        "reasons": list(want.reasons),
        "differences": list(after.differences),
        "diff": diff(domain.PATH, before or "", after.text),
    }


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    with one_sentence(module):
        module.exit_json(**run_module(module))


if __name__ == "__main__":
    main()
