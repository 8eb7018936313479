# The work is done by plugins/action/net_probe.py, from the controller and on all nodes at once. This file documents it.

DOCUMENTATION = r"""
module: net_probe
short_description: Test the connections between all nodes
version_added: "0.1.0"
description:
  - Starts listeners on all nodes, on the master port and on several ephemeral ports. Then each node connects to all
    other nodes. Results are C(ok), C(refused), C(dropped), C(prohibited) (rejected by a firewall as unreachable),
    C(no_route), C(foreign) (another program responded) or C(wrong_host) (another node responded).
  - Measures the round-trip time, packet loss, path MTU and clock offset of each link. Checks which source address and
    interface the kernel selects, and to which addresses the node names resolve.
  - Measures throughput between disjoint pairs, so that each node takes part in only one measurement at a time. In
    clusters with more than 16 nodes, each node is paired with eight others. Slow pairs are measured again, alone and
    longer.
  - If a node has bad links to most other nodes, the node is reported as faulty. If only one link is bad, the pair is
    reported.
  - Contacts all nodes at once, regardless of the number of forks, with the connection settings of the inventory. Use
    this module with C(run_once). Requires no root. The listeners stop at the end of the probe. If the probe is killed,
    the listeners stop several seconds later, and the next probe waits until they have stopped.
  - A faulty node or link is a finding and never fails the task. Nodes on which an earlier step failed do not run a
    probe, but the other nodes test connections to them.
options:
  plan:
    description: Registered result of M(health_plan).
    type: dict
    required: true
  nodes:
    description: Names of the nodes to test. If empty, all nodes of the play are tested.
    type: list
    elements: str
    default: []
  throughput:
    description: Measures the throughput.
    type: bool
    default: true
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: The throughput is not measured.}
  diff_mode: {support: none, description: "Changes nothing on a node, so there is no diff."}
  idempotent: {support: full, description: Changes nothing on a node.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Test the links between all nodes
  net_probe:
    plan: "{{ __health_plan }}"
  register: __health_network
  run_once: true
"""

RETURN = r"""
network:
  description:
    - Measured values, as stored in C(network.json). C(links) has one entry per ordered pair of nodes. null means not
      measured.
  returned: always
  type: dict
  sample:
    schema: 1
    nodes: [node1, node2]
    port: 29500
    links:
      - {from: node1, to: node2, ports: {"29500": ok, "32768": ok}, outcome: ok, rtt_ms: 0.041, loss: 0.0,
         path_mtu: 1500, gbps: 9.41, offset_ms: 0.012, source: 10.0.0.1, interface: eth0}
findings: {description: All findings., returned: always, type: list, elements: dict}
verdict:
  description: Summary of the findings. C(coverage) lists the skipped checks with reasons.
  returned: always
  type: dict
"""
