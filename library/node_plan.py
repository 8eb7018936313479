#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Looks at a node and says what must change for it to be as described. It changes nothing."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_plan
short_description: What must change on a node for it to be as described
version_added: "0.1.0"
description:
  - Looks at packages, files, kernel settings, units and one account of the node, all at once, and returns what differs
    from the description. It never changes anything. The tasks after it do, and only what is in its plan.
  - It looks at what is in force, not only at files. A run that was cut off between writing a file and having it read is
    finished by running again.
  - What this machine cannot do at all, such as setting the clock in a container, is left out with the reason.
author: The Muster authors
options:
  node:
    description: Name of the node in the inventory, for messages.
    type: str
    required: true
  mode:
    description:
      - With V(manage) the plan is returned.
      - With V(verify) the module fails when anything differs.
    type: str
    choices: [manage, verify]
    default: manage
  fix:
    description: What to type when something differs; the end of the message of a V(verify) that fails.
    type: str
    default: ""
  wait:
    description:
      - Seconds to wait for cloud-init to end, and for the package tools when packages are to be installed.
      - In check mode and with V(verify) nothing is waited for.
    type: int
    default: 600
  packages:
    description:
      - Packages that shall be there. An entry such as V(chrony|ntp) is content with any of them, and plans the first.
      - With a version, as in V(libnccl2=2.29.7-1+cuda13.2) or V(nvidia-open=580.159.04-*), they shall be of that one.
    type: list
    elements: str
    default: []
  held:
    description: Packages that apt shall not move by itself (C(apt-mark hold)).
    type: list
    elements: str
    default: []
  refused:
    description: Packages beside which nothing is done, each with the reason and what to do about it.
    type: dict
    default: {}
  files:
    description: Files that shall be there as given.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: Path of the file., type: path, required: true}
      content: {description: All of it., type: str, required: true}
      mode: {description: Its permissions., type: str, default: "0644"}
      owner: {description: Its owner., type: str, default: root}
      group: {description: Its group., type: str, default: root}
      needs: {description: Capability of the machine without which the file is left out., type: str, default: ""}
      by_effect:
        description:
          - Whether what the file is for is looked at in itself, as in O(manager) or O(login). V(verify) goes by that,
            whichever file brought it about. The same holds for O(sysctl_file).
        type: bool
        default: false
  sysctl:
    description: Kernel settings in force, looked at below C(/proc/sys).
    type: list
    elements: dict
    default: []
    suboptions:
      key: {description: Its name., type: str, required: true}
      value: {description: Its value., type: str, required: true}
      rule:
        description:
          - With V(at_least) a higher number stays, each of several for itself. With V(contains) a list of ports keeps
            those of others.
        type: str
        choices: [equal, at_least, contains]
        default: equal
      why: {description: Why it is set; a comment in O(sysctl_file)., type: str, default: ""}
  sysctl_file:
    description: File that keeps O(sysctl) for the next boot. Its text is made here.
    type: path
    default: ""
  units:
    description: Units that shall be enabled and running.
    type: list
    elements: dict
    default: []
    suboptions:
      name: {description: Name of the unit with its suffix., type: str, default: ""}
      of:
        description: Instead of a name. The units by the package of O(packages) that they come with.
        type: dict
        default: {}
      enabled: {description: Whether it must start with the system., type: bool, default: true}
      active: {description: Whether it must run., type: bool, default: true}
      restart_if_older_than:
        description: Files that it reads. One that was changed after the unit was started calls for a restart.
        type: list
        elements: path
        default: []
      needs:
        description:
          - Capability of the machine without which the unit is left out; V(nvidia_driver) stands for a loaded driver.
        type: str
        default: ""
      optional: {description: Whether a machine without the unit is fine., type: bool, default: false}
  manager:
    description: Settings of systemd itself, as C(systemctl show) has them.
    type: dict
    default: {}
  login:
    description: Settings of systemd-logind, as C(loginctl show-user) has them.
    type: dict
    default: {}
  traces:
    description: Paths that other roles have written. Those that are there are returned, and are no difference.
    type: list
    elements: path
    default: []
  user:
    description: An account to create when there is none of that name. One that is there is judged, never altered.
    type: dict
    suboptions:
      name: {description: Its name., type: str, required: true}
      uid: {description: Its number. Empty for the next free one., type: str, default: ""}
      gid: {description: Number of its group. Empty for the next free one., type: str, default: ""}
      shell: {description: Its shell., type: path, default: /bin/bash}
      never_in:
        description: Groups that it must not be in.
        type: list
        elements: str
        default: []
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  platform: {support: full, platforms: posix}
"""

EXAMPLES = r"""
- name: Look what is to be done
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
needed:
  description: Whether anything differs.
  returned: success
  type: bool
plan:
  description: What is to be done. Everything is empty when nothing is.
  returned: success
  type: dict
  contains:
    packages: {description: Packages to install., type: list, elements: str, returned: always}
    hold: {description: Packages to put on hold., type: list, elements: str, returned: always}
    configure: {description: Whether dpkg must first finish what was interrupted., type: bool, returned: always}
    folders: {description: Folders to make for the files., type: list, elements: str, returned: always}
    files: {description: "Files to write, as given.", type: list, elements: dict, returned: always}
    sysctl: {description: Keys to set., type: list, elements: str, returned: always}
    reexec: {description: Whether systemd must read its settings anew., type: bool, returned: always}
    units: {description: Units with what they need., type: list, elements: dict, returned: always}
    user: {description: The account to create; empty for none., type: dict, returned: always}
traces:
  description: Which of O(traces) are there.
  returned: success
  type: list
  elements: str
differences:
  description: Every difference, one sentence each.
  returned: success
  type: list
  elements: str
  sample: ["it lacks the packages chrony"]
left_out:
  description: What this machine cannot do, and why. (Ansible itself gives C(skipped) another meaning.)
  returned: success
  type: list
  elements: dict
  sample: [{"id": "chrony.service", "why": "this machine may not set its clock (it lacks CAP_SYS_TIME)"}]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster_node.baseline.compare import compare
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
        module.exit_json(**compare(module.params, check=module.check_mode))


if __name__ == "__main__":
    main()
