# The work is done on the controller, by plugins/action/launch_comparison.py. This file documents it.

DOCUMENTATION = r"""
module: launch_comparison
short_description: Compare the same training on all nodes, on one node and in one process
version_added: "0.2.0"
description:
  - Reads what rank 0 of each launch reported at its end - a line C(@muster) with a JSON object whose C(event) is
    C(summary), with C(samples_per_second) and C(global_batch), and, where the script knows them, C(seconds),
    C(accuracy), C(loss) and C(memory_mb).
  - Shows them as a table with speed-up and efficiency, and writes C(comparison.json) into the folder of the run.
  - Fails when launches cannot be compared, since one reported nothing or their global batches differ.
  - Contacts no node.
options:
  all_nodes:
    description: The registered result of M(torchrun_launch) on all nodes.
    type: dict
    required: true
  one_node:
    description: That on the first node alone, with all of its ranks, if there was one.
    type: dict
    default: {}
  one_process:
    description: That in a single process on the first node, if there was one.
    type: dict
    default: {}
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: "Does nothing, since check mode does not launch."}
  diff_mode: {support: none, description: "Changes nothing on a node, so there is nothing to show."}
  idempotent: {support: full, description: Changes nothing on a node.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Compare them
  launch_comparison:
    all_nodes: "{{ __comparison_all_nodes }}"
    one_node: "{{ __comparison_one_node }}"
    one_process: "{{ __comparison_one_process }}"
  run_once: true
"""

RETURN = r"""
msg:
  description: The table.
  returned: after launches
  type: str
comparison:
  description: What was measured, as in C(comparison.json).
  returned: after launches
  type: dict
verdict:
  description: The verdict of the launch on all nodes, with the comparison as its summary.
  returned: when the launches can be compared
  type: dict
"""
