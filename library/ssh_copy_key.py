#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Adds a public key to the authorized_keys of whoever logs in. What the file becomes is decided in muster/network."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_copy_key
short_description: Let the controller log in to a node with its key, as ssh-copy-id does
version_added: "0.2.0"
description:
  - Adds the public half of the controller's key to C(~/.ssh/authorized_keys) of the user who logs in, by whichever way
    Ansible gets in - as a rule with a password, from C(--ask-pass) or from a vault.
  - Then logs in once more, without the password, and fails where that does not succeed.
  - Which key - that of C(ansible_ssh_private_key_file), else the one in C(~/.ssh) that ssh itself would offer.
  - Lines that are there stay as they are. A key that is there already, with whatever options before it, is left.
  - A node that is reached without ssh is left alone.
author: The Muster authors
options:
  node:
    description: Name of the node in the inventory, for messages.
    type: str
    required: true
  key:
    description: The line of the public key. The controller's side fills it in.
    type: str
    default: ""
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  platform: {support: full, platforms: posix}
"""

EXAMPLES = r"""
- name: Let the controller log in with its key
  ssh_copy_key:
    node: "{{ inventory_hostname }}"
"""

RETURN = r"""
changed: {description: Whether the key was added., returned: success, type: bool}
path: {description: The file., returned: success, type: str}
"""

import os
import pwd
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.network.copy_key import with_key
from ansible.module_utils.muster_node.tools import files


def read(path: str) -> str:
    """Return what the file holds; bytes that are no text survive."""
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
