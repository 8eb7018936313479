#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Tries shared folders from every node at once."""

from __future__ import annotations

# The work is done on the controller, by plugins/action/shared_data_trial.py. This file documents it.

DOCUMENTATION = r"""
module: shared_data_trial
short_description: Try shared folders from every node at once
version_added: "0.2.0"
description:
  - In each folder every node writes a file as the training user, looks for the files of all others, and reads one of
    them. So it is known whether it is the same folder everywhere, how soon a node sees what another wrote, whose a
    file is there, and how fast all nodes together write and read.
  - The files have names that nobody uses, and are removed.
  - Contacts all nodes of the play at once, so run it once.
options:
  paths:
    description: The folders.
    type: list
    elements: str
    required: true
  megabytes:
    description: MiB that each node writes, and reads.
    type: int
    default: 256
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: "Nothing is written then."}
  diff_mode: {support: none, description: "Changes nothing that stays, so there is nothing to show."}
  idempotent: {support: full, description: Changes nothing that stays.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Try the data of the file server
  shared_data_trial:
    paths: [/data]
  become: true
  run_once: true
"""

RETURN = r"""
msg:
  description: The figures as a table, and the verdict in a sentence.
  returned: success
  type: str
shared_data:
  description: The figures, as in C(shared_data.json) of the run.
  returned: outside of check mode
  type: dict
verdict:
  description: The findings added up.
  returned: outside of check mode
  type: dict
"""
