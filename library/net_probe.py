# The work is done by plugins/action/net_probe.py, from the controller and on all nodes at once. This file documents it.

DOCUMENTATION = r"""
module: net_probe
short_description: Have all nodes call each other, as the ranks of a launch will
version_added: "0.1.0"
description:
  - Starts real listeners on every node, on the master port and on a few of the ports that the kernel hands out, and
    has every node call every other one. Each call is C(ok), C(refused), C(dropped), C(prohibited) (told that there is
    no way, by a firewall), C(no_route), C(foreign) (another program answered) or C(wrong_host) (another node answered).
  - On every link it measures the round trip, losses, the largest packet that comes through, and how far the clocks are
    apart; and looks which source address and interface the kernel takes, and what the nodes' names lead to.
  - Throughput is measured between disjoint pairs, so that no node takes part in two measurements at a time; above 16
    nodes, each node meets eight others. What seems slow is measured again, alone and for longer.
  - A node that stands behind bad links to most others is named; with two nodes, or a single bad link, the pair is.
  - Contacts all nodes at once, whatever the number of forks, each by the connection that the inventory gives it; use it
    with C(run_once). Nobody needs to be root. The listeners end with the probe; if that is killed, some
    seconds later, and another probe waits for that.
  - A sick node or link is a finding, and never fails the task. A node on which an earlier step failed is not asked, and
    called by the others all the same.
options:
  plan:
    description: The registered result of M(health_plan).
    type: dict
    required: true
  nodes:
    description: Names of the nodes that call each other. Empty means those of the play.
    type: list
    elements: str
    default: []
  throughput:
    description: Whether to measure throughput.
    type: bool
    default: true
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Does and returns the same as without it.}
  diff_mode: {support: none, description: "Changes nothing on a node, so there is nothing to show."}
  idempotent: {support: full, description: Changes nothing on a node.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Probe every link between two nodes
  net_probe:
    plan: "{{ __health_plan }}"
  register: __health_network
  run_once: true
"""

RETURN = r"""
network:
  description:
    - What was measured, as it is kept in C(network.json). C(links) has one entry for every ordered pair of nodes;
      null is not measured.
  returned: always
  type: dict
  sample:
    schema: 1
    nodes: [node1, node2]
    port: 29500
    links:
      - {from: node1, to: node2, ports: {"29500": ok, "32768": ok}, outcome: ok, rtt_ms: 0.041, loss: 0.0,
         path_mtu: 1500, gbps: 9.41, offset_ms: 0.012, source: 10.0.0.1, interface: eth0}
findings:
  description: Every finding.
  returned: always
  type: list
  elements: dict
verdict:
  description: What the findings add up to, and under C(coverage) what could not be looked at, and why.
  returned: always
  type: dict
"""
