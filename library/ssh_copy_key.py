#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Adds a public key to authorized_keys of the login user. muster/network decides the new content."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_copy_key
short_description: Authorize the SSH key of the controller on a node, like ssh-copy-id
version_added: "0.2.0"
description:
  - Adds the public key of the controller to C(~/.ssh/authorized_keys) of the login user, over the current connection of
    Ansible. This connection usually uses a password from C(--ask-pass) or from a vault.
  - Then logs in again without a password, and fails if this login fails.
  - Uses the key in C(ansible_ssh_private_key_file), or the first key in C(~/.ssh) that ssh would offer.
  - Existing lines are kept. If the key already has an entry, the entry and its options are not changed.
  - If the inventory does not use SSH to connect to a node, the node is not changed.
author: The Muster authors
options:
  key:
    description: Public key line. Set by the action plugin.
    type: str
    default: ""
extends_documentation_fragment: [role_options.posix, action_common_attributes, role_options.node]
"""

EXAMPLES = r"""
- name: Authorize the SSH key of the controller
  ssh_copy_key:
    node: "{{ inventory_hostname }}"
"""

RETURN = r"""
changed: {description: Whether the key was added., returned: success, type: bool}
path: {description: Path of the file., returned: success, type: str}
"""

import os
import pwd
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.network.copy_key import with_key
from ansible.module_utils.muster_node.tools import files


def read(path: str) -> str:
    """Return the content of the file. Bytes that are not valid UTF-8 are preserved."""
    try:
        text: str = files.read(path, links=True).decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return ""
    return text


def main() -> None:
    module = AnsibleModule(
        {"node": {"type": "str", "required": True}, "key": {"type": "str", "default": "", "no_log": False}},
        supports_check_mode=True,
    )
    node = module.params["node"]
    folder = f"{pwd.getpwuid(os.getuid()).pw_dir}/.ssh"
    path = f"{folder}/authorized_keys"
    try:
        before = read(path)
        after = with_key(before, module.params["key"])
        if after != before and not module.check_mode:
            if not Path(folder).is_dir():
                files.make_folder(folder, mode=0o700)
            files.replace(str(Path(path).resolve()), after.encode("utf-8", "surrogateescape"), mode=0o600)
    except OSError as problem:
        module.fail_json(msg=f"{node}: the key cannot be written to {path}: {problem.strerror or problem}.")
    shown = [text.encode("utf-8", "replace").decode() for text in (before, after)]
    diff = {"before_header": path, "after_header": path, "before": shown[0], "after": shown[1]}
    module.exit_json(changed=after != before, path=path, diff=diff)


if __name__ == "__main__":
    main()
