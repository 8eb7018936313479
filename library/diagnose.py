# The work is done on the controller, by plugins/action/diagnose.py. This file documents it.

DOCUMENTATION = r"""
module: diagnose
short_description: Say why a launch failed, or what one that hangs waits for
version_added: "0.2.0"
description:
  - Puts together what is known of a launch, looks at its nodes once more where that can tell more, and says in five
    lines what happened, where, why and on what evidence, what was ruled out, and what to type.
  - A cause that is not proved is not said as one. What nobody could look at is named, with what would tell more.
  - Changes nothing on a node, ends nothing there, and renews no lease.
  - A diagnosis that says C(unknown) is a diagnosis, and no failure of this module.
  - Contacts every node by the connection that the inventory gives it; use it with C(run_once).
options:
  launch:
    description:
      - Id of a launch, which may run or be over, and may have been begun from another controller. Without it,
        one that runs on the nodes now, whoever began it and however; where none does, the last one that was begun from
        here.
    type: str
    default: ""
  log:
    description:
      - Logs that Muster did not make, on the controller - a file, a folder, or a pattern of files, such as
        C(slurm-*.out). No node is asked.
    type: str
    default: ""
  account:
    description:
      - Account whose C(torchrun) is diagnosed, which runs on the nodes now and was begun without Muster. Without it, a
        C(torchrun) of an account outside of the cluster is only listed if there is a launch of the cluster to diagnose.
    type: str
    default: ""
  live:
    description: Whether only a launch that runs now is diagnosed, and not the last one where there is none.
    type: bool
    default: false
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Does and returns the same as without it.}
  diff_mode: {support: none, description: "Changes nothing on a node, so there is nothing to show."}
  idempotent: {support: full, description: Changes nothing on a node.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Why the last launch failed
  diagnose:
  become: true
  run_once: true

- name: Why one of them failed, or what it waits for
  diagnose:
    launch: 20261121-093142-1df3
  become: true
  run_once: true
"""

RETURN = r"""
diagnosis:
  description: >-
    As in C(diagnosis.json): C(word) (confirmed, likely or unknown), C(lines) for people, C(causes) with their proofs,
    C(candidates), C(also_seen), what was ruled out (C(ruled_out)), C(symptoms), and why nodes were not looked at
    (C(not_looked)).
  returned: when there is something to diagnose
  type: dict
artifacts:
  description: Folder on the controller with C(diagnosis.json) and C(evidence.json).
  returned: when there is something to diagnose
  type: str
said:
  description: Why there is nothing to diagnose.
  returned: when there is nothing
  type: str
"""
