"""What is said of a notebook, and the line of ssh."""

from __future__ import annotations

from typing import Any

import pytest

from muster.workbench.notebook import Way, changes, lines, problem, said_last, tunnel

SEEN: dict[str, Any] = {
    "user": "anna",
    "running": True,
    "answers": True,
    "at_boot": False,
    "socket": "/run/user/2001/muster-notebook/socket",
    "token_file": "/var/lib/muster/users/anna/notebook/token",
}
SITE = "ansible-playbook site.yml --tags launch_users,workbench"
START = "ansible-playbook playbooks/notebook.yml -e notebook_user=anna -e notebook_state=started"
WAY = Way("10.0.0.11", ("-o", "ProxyJump=bastion", "-o", "UserKnownHostsFile=/srv/my lab/known_hosts"))


@pytest.mark.parametrize(
    ("nodes", "wanted", "port", "said"),
    [
        (
            [],
            "",
            8888,
            f"No node has JupyterLab. Name nodes in workbench_nodes, and run {SITE}.",
        ),
        (["node1"], "node2", 8888, "node2 is not in workbench_nodes, which has node1."),
        (["node9"], "", 8888, "node9 is in workbench_nodes, and not in gpu_nodes."),
        (["node1"], "", 0, "notebook_port is 0, and a port is 1 to 65535."),
        (["node1"], "node1", 8888, ""),
    ],
)
def test_why_there_can_be_none(nodes: list[str], wanted: str, port: int, said: str) -> None:
    assert problem(nodes, ["node1", "node2"], wanted, port) == said


@pytest.mark.parametrize(
    ("running", "at_boot", "state", "wanted_at_boot", "expected"),
    [
        (False, False, "started", False, True),
        (True, False, "started", False, False),
        (True, False, "started", True, True),
        (True, True, "started", False, True),
        (True, True, "started", True, False),
        (True, False, "stopped", False, True),
        (False, True, "stopped", False, True),
        (False, False, "stopped", True, False),
        (True, True, "looked_at", False, False),
    ],
)
def test_what_would_change(running: bool, at_boot: bool, state: str, wanted_at_boot: bool, expected: bool) -> None:
    assert changes({"running": running, "at_boot": at_boot}, state, wanted_at_boot) == expected


def test_the_line_goes_by_the_bastions_of_the_inventory() -> None:
    assert tunnel(WAY, "anna", SEEN["socket"], 8889) == (
        "ssh -N -L 8889:/run/user/2001/muster-notebook/socket -o ProxyJump=bastion"
        " -o 'UserKnownHostsFile=/srv/my lab/known_hosts' anna@10.0.0.11"
    )


def test_one_that_runs_is_said_with_its_way_and_without_its_token() -> None:
    said = lines("node1", SEEN, WAY, 8888)
    assert said[0] == "The notebook of anna on node1 runs, until it is ended, or the node restarts."
    assert said[1].endswith(tunnel(WAY, "anna", SEEN["socket"], 8888))
    assert said[-1].endswith("anna@10.0.0.11 cat /var/lib/muster/users/anna/notebook/token")


def test_one_that_starts_with_the_node() -> None:
    said = lines("node1", {**SEEN, "at_boot": True}, None, 8888)
    assert said == [
        "The notebook of anna on node1 runs, also after a restart of the node.",
        "It listens on /run/user/2001/muster-notebook/socket.",
    ]


def test_one_that_does_not_answer_is_not_said_to_be_fine() -> None:
    (said,) = lines("node1", {**SEEN, "answers": False}, WAY, 8888)
    assert said.startswith("The notebook of anna on node1 runs, and does not answer.")


def test_one_that_does_not_run_is_said_with_what_starts_it() -> None:
    assert lines("node1", {**SEEN, "running": False}, WAY, 8888) == [
        f"The notebook of anna on node1 does not run. To start it: {START}"
    ]


@pytest.mark.parametrize(
    ("seen", "way", "checked", "said"),
    [
        ({}, "ssh -N node1", False, "the notebook of anna on node1 runs; to reach it: ssh -N node1"),
        ({}, "", False, "the notebook of anna on node1 runs"),
        ({"answers": False}, "ssh -N node1", False, "the notebook of anna on node1 runs, and does not answer"),
        ({"running": False}, "", False, "the notebook of anna on node1 does not run"),
        ({"running": False}, "", True, "the notebook of anna on node1 is started"),
        ({}, "", True, "the notebook of anna on node1 is stopped"),
    ],
)
def test_the_last_line(seen: dict[str, bool], way: str, checked: bool, said: str) -> None:
    assert said_last("node1", {**SEEN, **seen}, way, checked=checked) == said
