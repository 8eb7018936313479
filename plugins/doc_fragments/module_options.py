"""Fragments with the documentation that many modules share: `module_options.node`."""

from __future__ import annotations


class ModuleDocFragment:
    NODE = """
options:
  node:
    description: Name of the node in the inventory, used in messages.
    type: str
    required: true
"""
    MODE = """
options:
  mode:
    description: V(manage) makes the changes that are needed. V(verify) changes nothing and fails if changes are needed.
    type: str
    choices: [manage, verify]
    default: manage
"""
    POSIX = """
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  platform: {support: full, platforms: posix}
"""
    DEBIAN = """
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  platform: {support: full, platforms: debian}
"""
