"""Rows with an unreachable head node or an absent node. Most print the same line on all nodes but the faulty one."""

from __future__ import annotations

from damage import dropped, prohibited, rejected, reply_lost, sleeping_payload, wrong_route_to
from row import Row

TWIN = "The client socket has timed out"
# Without the probe before the start, which would report most of these faults.
BLIND_START = {"launch_probe": False, "launch_rendezvous_timeout": 25}

ROWS = (
    Row(
        "head-filtered",
        "the head node drops packets of one node to the master port",
        right=("head.filtered @ node1 - node2", "head.filtered @ node1"),
        twin=TWIN,
        arguments=("--timeout=25",),
        variables=BLIND_START,
        before=dropped("node1", ("node2",)),
        in_ci=True,
    ),
    Row(
        "head-filtered-everybody",
        "the head node drops packets to the master port",
        right=("head.filtered @ node1",),
        twin=TWIN,
        arguments=("--timeout=25",),
        variables=BLIND_START,
        before=dropped("node1", ("node2", "node3")),
    ),
    Row(
        "head-rejected",
        "the head node rejects packets to the master port (TCP reset)",
        right=("head.rejected @ node1",),
        twin="Connection refused",
        arguments=("--timeout=25",),
        variables=BLIND_START,
        before=rejected("node1", ("node2", "node3")),
    ),
    Row(
        "head-prohibited",
        "the head node rejects packets to the master port (ICMP admin-prohibited)",
        right=("head.forbidden @ node1",),
        twin=TWIN,
        arguments=("--timeout=25",),
        variables=BLIND_START,
        before=prohibited("node1", ("node2", "node3")),
    ),
    Row(
        "head-reply-lost",
        "replies of the head node to one node are lost",
        right=("head.reply_lost @ node1 - node2", "head.filtered @ node1 - node2"),
        twin=TWIN,
        arguments=("--timeout=25",),
        variables=BLIND_START,
        before=reply_lost("node1", "node2"),
    ),
    Row(
        "head-route",
        "one node's route to the head node uses another interface",
        right=("head.other_route @ node1 - node2", "head.other_route @ node2"),
        twin=TWIN,
        arguments=("--timeout=25",),
        variables=BLIND_START,
        before=wrong_route_to("node2", "node1"),
    ),
    Row(
        "head-not-listening",
        "the script on the head node is busy before it opens its store",
        right=("absent.busy @ node1",),
        twin=TWIN,
        arguments=("--fault=sleep", "--rank=0", "--before", "--timeout=25"),
        variables=BLIND_START,
        before=sleeping_payload,
    ),
    Row(
        "absent-late",
        "the script on one node is busy before the rendezvous",
        right=("absent.busy @ node3",),
        twin="k/n clients joined",
        arguments=("--fault=sleep", "--rank=2", "--before", "--timeout=25"),
        variables=BLIND_START,
        before=sleeping_payload,
    ),
    Row(
        "absent-filtered",
        "the head node drops packets of one of two other nodes",
        right=("head.filtered @ node1 - node3",),
        twin="k/n clients joined",
        arguments=("--timeout=25",),
        variables=BLIND_START,
        before=dropped("node1", ("node3",)),
    ),
)
