#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Computes the changes that a node requires, without making them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_plan
short_description: Compute the changes that a node requires
version_added: "0.1.0"
description:
  - Compares packages, files, kernel settings, units and one account of the node with the requested state, and returns
    the differences as a plan. The module changes nothing. The tasks that follow apply exactly this plan.
  - Checks not only files, but also the settings in effect. A file that an interrupted run only wrote is therefore
    applied.
  - Settings that this machine does not support, such as the clock of a container, are skipped with a reason.
author: The Muster authors
options:
  mode:
    description:
      - Mode of the module. V(manage) returns the plan.
      - V(verify) fails on differences.
    type: str
    choices: [manage, verify]
    default: manage
  fix:
    description: Suggested fix, appended to the error message of V(verify).
    type: str
    default: ""
  wait:
    description:
      - Time in seconds to wait for cloud-init and, if packages will be installed, for running package tools.
      - Check mode and V(verify) do not wait.
    type: int
    default: 600
  packages:
    description:
      - Required packages. C(|) separates alternatives, as in V(chrony|ntp). The first one is installed if none is
        present.
      - An entry can require a version, as in V(libnccl2=2.29.7-1+cuda13.2) or V(nvidia-open=580.159.04-*).
    type: list
    elements: str
    default: []
  held:
    description: Packages to hold (C(apt-mark hold)).
    type: list
    elements: str
    default: []
  refused:
    description: >-
      Packages that must not be installed, each with the reason and the fix. If one is installed, the module fails.
    type: dict
    default: {}
  files:
    description: Files that must exist on the node.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: Path of the file., type: path, required: true}
      content: {description: Content of the file., type: str, required: true}
      mode: {description: Permissions of the file., type: str, default: "0644"}
      owner: {description: Owner of the file., type: str, default: root}
      group: {description: Group of the file., type: str, default: root}
      needs:
        description: Capability that the file requires. On a machine without the capability, the file is skipped.
        type: str
        default: ""
      by_effect:
        description:
          - Whether the effect of the file is checked separately, as in O(manager) or O(login). If so, V(verify) checks
            the effect instead of the file, as it always does for O(sysctl_file).
        type: bool
        default: false
  sysctl:
    description: Required kernel settings below C(/proc/sys).
    type: list
    elements: dict
    default: []
    suboptions:
      key: {description: Name of the setting., type: str, required: true}
      value: {description: Value of the setting., type: str, required: true}
      rule:
        description:
          - How the value is compared. V(at_least) keeps higher numbers. If the value consists of several numbers, each
            is compared separately. V(contains) adds to a list of ports and keeps existing entries.
        type: str
        choices: [equal, at_least, contains]
        default: equal
      why: {description: "Reason for the setting, written as a comment to O(sysctl_file).", type: str, default: ""}
  sysctl_file:
    description: Path of the file that makes O(sysctl) persistent. The module generates the content of the file.
    type: path
    default: ""
  units:
    description: Units that must be enabled and running.
    type: list
    elements: dict
    default: []
    suboptions:
      name: {description: Name of the unit with its suffix., type: str, default: ""}
      of:
        description: Unit name for each package in O(packages) that can provide the unit, instead of O(units[].name).
        type: dict
        default: {}
      enabled: {description: Whether the unit must start at boot., type: bool, default: true}
      active: {description: Whether the unit must be running., type: bool, default: true}
      restart_if_older_than:
        description: >-
          Files that the unit reads at its start. If a file changed after the unit started, the unit is restarted.
        type: list
        elements: path
        default: []
      needs:
        description:
          - Capability that the unit requires. On a machine without the capability, the unit is skipped.
            V(nvidia_driver) means a loaded driver.
        type: str
        default: ""
      optional: {description: Whether a missing unit is accepted., type: bool, default: false}
  manager:
    description: Required settings of the systemd manager, as shown by C(systemctl show).
    type: dict
    default: {}
  login:
    description: Required settings of systemd-logind, as shown by C(loginctl show-user).
    type: dict
    default: {}
  traces:
    description: >-
      Paths that other roles might have written. The result lists those that exist. They do not count as differences.
    type: list
    elements: path
    default: []
  user:
    description: Account to create if it does not exist. An existing account is checked and never changed.
    type: dict
    suboptions:
      name: {description: Name of the account., type: str, required: true}
      uid: {description: "Uid. If empty, that of an existing home, or the next free uid.", type: str, default: ""}
      gid: {description: "Gid. If empty, that of an existing home, or the next free gid.", type: str, default: ""}
      shell: {description: Login shell of the account., type: path, default: /bin/bash}
      never_in:
        description: Groups that the account must not be a member of.
        type: list
        elements: str
        default: []
extends_documentation_fragment: [role_options.posix, action_common_attributes, role_options.node]
"""

EXAMPLES = r"""
- name: Compute the required changes
  node_plan:
    node: "{{ inventory_hostname }}"
    packages: [chrony|ntpsec]
    units:
      - of: {chrony: chrony.service, ntpsec: ntpsec.service}
        needs: CAP_SYS_TIME
  register: look

- name: Install packages
  ansible.builtin.apt:
    name: "{{ look.plan.packages }}"
  when: look.plan.packages | length > 0
"""

RETURN = r"""
needed: {description: Whether the node differs from the request., returned: success, type: bool}
plan:
  description: Required changes. All values are empty if there are no changes.
  returned: success
  type: dict
  contains:
    packages: {description: Packages to install., type: list, elements: str, returned: always}
    hold: {description: Packages to hold., type: list, elements: str, returned: always}
    configure: {description: Whether dpkg must first finish an interrupted installation., type: bool, returned: always}
    folders: {description: Folders to create for the files., type: list, elements: str, returned: always}
    files: {description: "Files to write, as requested.", type: list, elements: dict, returned: always}
    sysctl: {description: Kernel settings to apply., type: list, elements: str, returned: always}
    reexec: {description: Whether systemd must reload its settings., type: bool, returned: always}
    units: {description: Units with the required actions., type: list, elements: dict, returned: always}
    user: {description: Account to create. Empty if there is none., type: dict, returned: always}
traces: {description: Paths of O(traces) that exist., returned: success, type: list, elements: str}
differences:
  description: All differences, one sentence each.
  returned: success
  type: list
  elements: str
  sample: ["it lacks the packages chrony"]
left_out:
  description: >-
    Settings that this machine does not support, with the reason. (C(skipped) has another meaning in Ansible.)
  returned: success
  type: list
  elements: dict
  sample: [{"id": "chrony.service", "why": "this machine may not set its clock (it lacks CAP_SYS_TIME)"}]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster_node.baseline.compare import compare
from ansible.module_utils.muster_node.packages.apt import predict
from ansible.module_utils.muster_node.tools.result import one_sentence

SPEC = {
    "node": {"type": "str", "required": True},
    "mode": {"type": "str", "choices": ["manage", "verify"], "default": "manage"},
    "fix": {"type": "str", "default": ""},
    "wait": {"type": "int", "default": 600},
    "packages": {"type": "list", "elements": "str", "default": []},
    "held": {"type": "list", "elements": "str", "default": []},
    "refused": {"type": "dict", "default": {}},
    "files": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "path": {"type": "path", "required": True},
            "content": {"type": "str", "required": True},
            "mode": {"type": "str", "default": "0644"},
            "owner": {"type": "str", "default": "root"},
            "group": {"type": "str", "default": "root"},
            "needs": {"type": "str", "default": ""},
            "by_effect": {"type": "bool", "default": False},
        },
    },
    "sysctl": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "no_log": False,
        "options": {
            "key": {"type": "str", "required": True, "no_log": False},
            "value": {"type": "str", "required": True},
            "rule": {"type": "str", "choices": ["equal", "at_least", "contains"], "default": "equal"},
            "why": {"type": "str", "default": ""},
        },
    },
    "sysctl_file": {"type": "path", "default": ""},
    "units": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "name": {"type": "str", "default": ""},
            "of": {"type": "dict", "default": {}},
            "enabled": {"type": "bool", "default": True},
            "active": {"type": "bool", "default": True},
            "restart_if_older_than": {"type": "list", "elements": "path", "default": []},
            "needs": {"type": "str", "default": ""},
            "optional": {"type": "bool", "default": False},
        },
    },
    "manager": {"type": "dict", "default": {}},
    "login": {"type": "dict", "default": {}},
    "traces": {"type": "list", "elements": "path", "default": []},
    "user": {
        "type": "dict",
        "options": {
            "name": {"type": "str", "required": True},
            "uid": {"type": "str", "default": ""},
            "gid": {"type": "str", "default": ""},
            "shell": {"type": "path", "default": "/bin/bash"},
            "never_in": {"type": "list", "elements": "str", "default": []},
        },
    },
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    with one_sentence(module):
        result = compare(module.params, check=module.check_mode)
        if module.check_mode and (packages := result.get("plan", {}).get("packages")):
            result["changes"].update(predict(*packages))
        module.exit_json(**result)


if __name__ == "__main__":
    main()
