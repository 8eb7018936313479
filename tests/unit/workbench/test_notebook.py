"""What is said of a notebook, and the line of ssh."""

from __future__ import annotations

import shlex
import subprocess
from typing import Any

import pytest

from muster.workbench import notebook

SEEN: notebook.Notebook = {
    "user": "anna",
    "running": True,
    "answers": True,
    "at_boot": False,
    "socket": "/run/user/2001/muster-notebook/socket",
    "token_file": "/var/lib/muster/users/anna/notebook/token",
}
SITE = "ansible-playbook site.yml --tags launch_users,workbench"
START = "ansible-playbook playbooks/notebook.yml -e notebook_user=anna -e notebook_state=started"
WAY = notebook.SshAccess("10.0.0.11", ("-o", "ProxyJump=bastion", "-o", "UserKnownHostsFile=/srv/my lab/known_hosts"))


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
    assert notebook.problem(nodes, ["node1", "node2"], wanted, port) == said


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
    assert notebook.changes({**SEEN, "running": running, "at_boot": at_boot}, state, wanted_at_boot) == expected


def test_the_line_goes_by_the_bastions_of_the_inventory() -> None:
    assert notebook.tunnel(WAY, "anna", SEEN["socket"], 8889) == (
        "ssh -N -L 8889:/run/user/2001/muster-notebook/socket -o ProxyJump=bastion"
        " -o 'UserKnownHostsFile=/srv/my lab/known_hosts' -- anna@10.0.0.11"
    )


def test_one_that_runs_is_said_with_its_way_and_without_its_token() -> None:
    said = notebook.lines("node1", SEEN, WAY, 8888)
    assert said[0] == "The notebook of anna on node1 runs, until it is ended, or the node restarts."
    assert said[1].endswith(notebook.tunnel(WAY, "anna", SEEN["socket"], 8888))
    assert said[-1].endswith("anna@10.0.0.11 cat /var/lib/muster/users/anna/notebook/token")


def test_one_that_starts_with_the_node() -> None:
    said = notebook.lines("node1", {**SEEN, "at_boot": True}, None, 8888)
    assert said == [
        "The notebook of anna on node1 runs, also after a restart of the node.",
        "It listens on /run/user/2001/muster-notebook/socket.",
    ]


def test_one_that_does_not_answer_is_not_said_to_be_fine() -> None:
    (said,) = notebook.lines("node1", {**SEEN, "answers": False}, WAY, 8888)
    assert said.startswith("The notebook of anna on node1 runs, and does not answer.")


def test_one_that_does_not_run_is_said_with_what_starts_it() -> None:
    assert notebook.lines("node1", {**SEEN, "running": False}, WAY, 8888) == [
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
def test_the_last_line(seen: Any, way: str, checked: bool, said: str) -> None:
    assert notebook.said_last("node1", {**SEEN, **seen}, way, checked=checked) == said


ROOT = "/var/lib/muster/users"
ANSWER = {**SEEN, "there": True, "launch_user": True}
EVIL = "-oProxyCommand=touch /tmp/x"


def test_an_answer_is_taken_by_its_form_and_the_token_lies_where_the_inventory_has_it() -> None:
    assert notebook.read("node1", ANSWER, "anna", ROOT) == SEEN
    assert notebook.read("node1", {**ANSWER, "token_file": "/x; rm -r ~"}, "", ROOT) == SEEN
    other = notebook.read("node1", {**ANSWER, "user": "a.b@corp"}, "", "/srv/u")
    assert other == {**SEEN, "user": "a.b@corp", "token_file": "/srv/u/a.b@corp/notebook/token"}


@pytest.mark.parametrize(
    ("part", "value", "asked", "said"),
    [
        ("user", EVIL, "anna", f'node1 answered for the user "{EVIL}", and anna was asked for. '),
        ("user", "ben", "anna", 'node1 answered for the user "ben", and anna was asked for. '),
        ("user", EVIL, "", f'node1 answered with the user "{EVIL}", which is no name of one. '),
        ("user", "a\n", "", "node1 answered with the user "),
        ("user", "a b", "", "node1 answered with the user "),
        ("user", "$(id)", "", "node1 answered with the user "),
        ("user", None, "", "node1 answered with the user "),
        ("socket", "/run/user/1/muster-notebook/socket -oProxyCommand=x", "anna", "node1 answered with the socket "),
        ("socket", "/run/user/../muster-notebook/socket", "anna", "node1 answered with the socket "),
        (
            "socket",
            "/run/user/\N{ARABIC-INDIC DIGIT ONE}/muster-notebook/socket",
            "anna",
            "node1 answered with the socket ",
        ),
        ("socket", "localhost:22", "anna", "node1 answered with the socket "),
        ("running", "yes", "anna", 'node1 answered running with "yes", which is neither yes nor no. '),
        ("answers", None, "anna", "node1 answered answers with "),
    ],
)
def test_an_answer_in_another_form_is_refused_and_its_node_named(part: str, value: Any, asked: str, said: str) -> None:
    with pytest.raises(notebook.AnswerError) as refused:
        notebook.read("node1", {**ANSWER, part: value}, asked, ROOT)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize("part", ["user", "socket", "running"])
def test_an_answer_that_lacks_a_part_is_refused(part: str) -> None:
    with pytest.raises(notebook.AnswerError):
        notebook.read("node1", {name: value for name, value in ANSWER.items() if name != part}, "", ROOT)


@pytest.mark.parametrize(
    "line", [notebook.tunnel(WAY, EVIL, SEEN["socket"], 8889), notebook.token(WAY, EVIL, "/a b/token")]
)
def test_ssh_takes_what_is_behind_its_options_for_a_host(line: str) -> None:
    """Asked of ssh itself, which says what it would do and connects to nobody."""
    program, *words = shlex.split(line)
    asked = subprocess.run([program, "-G", *words], capture_output=True, text=True, check=False)
    assert "proxycommand" not in asked.stdout
    assert asked.returncode != 0  # no user is called that


def test_ssh_takes_the_lines_of_a_user() -> None:
    for line in (notebook.tunnel(WAY, "anna", SEEN["socket"], 8889), notebook.token(WAY, "anna", "/a b/token")):
        program, *words = shlex.split(line)
        asked = subprocess.run([program, "-G", *words], capture_output=True, text=True, check=True)
        assert {"user anna", "hostname 10.0.0.11", "proxyjump bastion"} <= set(asked.stdout.splitlines())
    assert (
        notebook.token(notebook.SshAccess("h"), "anna", "/a b/token") == """ssh -- anna@h cat ''"'"'/a b/token'"'"''"""
    )
