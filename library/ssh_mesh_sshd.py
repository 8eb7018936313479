# The work is done on the controller, by plugins/action/ssh_mesh_sshd.py. This file documents it.

DOCUMENTATION = r"""
module: ssh_mesh_sshd
short_description: Settings of sshd that stay only when a new connection works with them
version_added: "0.1.0"
description:
  - Writes a file of settings for sshd, lets sshd judge it, and reloads sshd. Connections that are open stay.
  - A timer on the node puts back what was before, unless a new connection from the controller succeeds.
  - First undoes what an interrupted run left unconfirmed.
options:
  path:
    description: The file, in a folder that sshd_config includes.
    type: path
    required: true
  settings:
    description: What it shall hold. Empty for no such file.
    type: str
    required: true
  seconds:
    description: Seconds until the timer puts back what was before.
    type: int
    default: 40
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Offer no weak algorithms
  ssh_mesh_sshd:
    path: /etc/ssh/sshd_config.d/90-muster.conf
    settings: |
      MACs -hmac-sha1*
  become: true
"""

RETURN = r"""
changed: {description: Whether sshd has got other settings., type: bool, returned: always}
"""
