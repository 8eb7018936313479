# The work is done on the controller, by plugins/action/drift.py. This file documents it.

DOCUMENTATION = r"""
module: drift
short_description: What of each node differs, since when, and by whom
version_added: "0.2.0"
description:
  - Compares each node with what the inventory wants (the steps of site.yml in check mode) and with what was last
    installed there (M(installed_record)).
  - Says since when and by whom, as far as dpkg's log, apt's history, the journal, the times of files and sudo's log
    tell. Where two fit equally or none does, nobody is named.
  - Fails where something drifted, or where a node could not be looked at. A node that is down stops nothing.
  - Contacts every node by the connection that the inventory gives it; use it with C(run_once).
options:
  repair:
    description:
      - Whether the steps put back what they own, each on the nodes alone that need it. Then it is looked again.
      - What would disturb a launch that runs on a node is left, and said.
    type: bool
    default: false
  accept:
    description: Whether what is there now is taken as what was last installed.
    type: bool
    default: false
  json:
    description: Whether RV(msg) is what is in C(drift.json), and no table.
    type: bool
    default: false
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: "Looks in the same way, and says what O(repair) and O(accept) would do."}
  diff_mode: {support: none, description: What differs is what it says anyway.}
  idempotent: {support: full, description: "Without O(repair) it changes nothing on a node."}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: What drifted
  drift:
  become: true
  run_once: true

- name: Have it put back
  drift:
    repair: true
  become: true
  run_once: true
"""

RETURN = r"""
drift:
  description: >-
    As in C(drift.json): C(nodes), C(differences) (node, id, status, what, observed, expected, step, since, by, how and
    source), and what was done about them (C(repairs)).
  returned: always
  type: dict
verdict:
  description: What was found, of every node.
  returned: always
  type: dict
msg:
  description: The table, or JSON.
  returned: always
  type: str
"""
