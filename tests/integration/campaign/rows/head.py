"""The head node cannot be reached, or a node is absent: most print the same line, on all nodes but the culprit."""

from __future__ import annotations

from damage import asleep, dropped, led_astray_to, prohibited, rejected, reply_lost
from row import Row

TWIN = "The client socket has timed out"
# Without the calls before the start, which name most of these before a rank begins.
BLIND_START = {"launch_probe": False, "launch_rendezvous_timeout": 25}

ROWS = (
    Row(
        "head-filtered",
        "the head node drops what comes to the master port from one node",
        "head",
        right=("head.filtered @ node1 - node2", "head.filtered @ node1"),
        twin=TWIN,
        arguments=("--timeout=25",),
        variables=BLIND_START,
        before=dropped("node1", ("node2",)),
        in_ci=True,
    ),
    Row(
        "head-filtered-everybody",
        "the head node drops what comes to the master port",
        "head",
        right=("head.filtered @ node1",),
        twin=TWIN,
        arguments=("--timeout=25",),
        variables=BLIND_START,
        before=dropped("node1", ("node2", "node3")),
    ),
    Row(
        "head-rejected",
        "the head node refuses what comes to the master port (tcp reset)",
        "head",
        right=("head.rejected @ node1",),
        twin="Connection refused",
        arguments=("--timeout=25",),
        variables=BLIND_START,
        before=rejected("node1", ("node2", "node3")),
    ),
    Row(
        "head-prohibited",
        "the head node answers that it is prohibited (icmp)",
        "head",
        right=("head.forbidden @ node1",),
        twin=TWIN,
        arguments=("--timeout=25",),
        variables=BLIND_START,
        before=prohibited("node1", ("node2", "node3")),
    ),
    Row(
        "head-reply-lost",
        "what the head node answers to one node is lost",
        "head",
        right=("head.reply_lost @ node1 - node2", "head.filtered @ node1 - node2"),
        twin=TWIN,
        arguments=("--timeout=25",),
        variables=BLIND_START,
        before=reply_lost("node1", "node2"),
    ),
    Row(
        "head-route",
        "one node has a route to the head node by another interface",
        "head",
        right=("head.other_route @ node1 - node2", "head.other_route @ node2"),
        twin=TWIN,
        arguments=("--timeout=25",),
        variables=BLIND_START,
        before=led_astray_to("node2", "node1"),
    ),
    Row(
        "head-not-listening",
        "the script on the head node is busy before it opens its store",
        "absent",
        right=("absent.busy @ node1",),
        twin=TWIN,
        arguments=("--fault=sleep", "--rank=0", "--before", "--timeout=25"),
        variables=BLIND_START,
        before=asleep,
    ),
    Row(
        "absent-late",
        "the script on one node is busy before it meets the others",
        "absent",
        right=("absent.busy @ node3",),
        twin="k/n clients joined",
        arguments=("--fault=sleep", "--rank=2", "--before", "--timeout=25"),
        variables=BLIND_START,
        before=asleep,
    ),
    Row(
        "absent-filtered",
        "the head node drops what one of two others sends",
        "head",
        right=("head.filtered @ node1 - node3",),
        twin="k/n clients joined",
        arguments=("--timeout=25",),
        variables=BLIND_START,
        before=dropped("node1", ("node3",)),
    ),
)
