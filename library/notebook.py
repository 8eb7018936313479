# The work is done on the controller, by plugins/action/notebook.py. This file documents it.

DOCUMENTATION = r"""
module: notebook
short_description: Start, end or look at somebody's notebook
version_added: "0.2.0"
description:
  - Starts JupyterLab as a unit of that person's own user manager, on a node that the role workbench has prepared, and
    waits until it answers nobody without its token, and whoever has it.
  - Prints the line of ssh that leads there, with the bastions of the inventory, and where the token lies. The token
    itself is in a file of that person's alone, in no output and in no argument list.
  - Who logs in as an administrator does it for any launch user, and a launch user for themselves, without root.
  - Contacts the node by the connection that the inventory gives it; use it with C(run_once).
options:
  user:
    description: Whose notebook it is. Empty means who logs in.
    type: str
    default: ""
  state:
    description: V(started) and V(stopped) have it be so. V(looked_at) says whether it runs.
    type: str
    choices: [started, stopped, looked_at]
    default: looked_at
  at_boot:
    description: With V(started) of O(state), whether it starts with the node as well, until it is stopped.
    type: bool
    default: false
  on_node:
    description: The node on which it is. Empty means the first one of O(nodes).
    type: str
    default: ""
  nodes:
    description: The nodes on which notebooks may be.
    type: list
    elements: str
    default: []
  port:
    description: Port on the machine from which it is used.
    type: int
    default: 8888
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full}
  diff_mode: {support: none, description: "What is different is said in one line."}
  idempotent: {support: full, description: A second run changes nothing.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Start a notebook of anna's, on every boot
  notebook:
    user: anna
    state: started
    at_boot: true
    nodes: [node1]
  become: true
  run_once: true
"""

RETURN = r"""
notebook:
  description: Whether it is C(running), C(at_boot), whose it is (C(user)), its C(socket) and its C(token_file).
  returned: success
  type: dict
ssh:
  description: The line that leads there.
  returned: when it runs
  type: str
"""
