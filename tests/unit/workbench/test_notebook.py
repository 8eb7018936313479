"""Messages about notebooks, and the ssh commands to connect to them."""

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
            f"No node has JupyterLab. Add nodes to workbench_nodes, and run {SITE}.",
        ),
        (["node1"], "node2", 8888, "node2 is not in workbench_nodes (node1)."),
        (["node9"], "", 8888, "node9 is in workbench_nodes but not in gpu_nodes."),
        (["node1"], "", 0, "notebook_port is 0, but must be between 1 and 65535."),
        (["node1"], "node1", 8888, ""),
    ],
)
def test_invalid_requests_are_explained(nodes: list[str], wanted: str, port: int, said: str) -> None:
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
def test_needed_change_is_found(running: bool, at_boot: bool, state: str, wanted_at_boot: bool, expected: bool) -> None:
    assert notebook.changes({**SEEN, "running": running, "at_boot": at_boot}, state, wanted_at_boot) == expected


def test_ssh_command_uses_the_jump_hosts() -> None:
    assert notebook.tunnel(WAY, "anna", SEEN["socket"], 8889) == (
        "ssh -N -L 8889:/run/user/2001/muster-notebook/socket -o ProxyJump=bastion"
        " -o 'UserKnownHostsFile=/srv/my lab/known_hosts' -- anna@10.0.0.11"
    )


def test_running_notebook_is_shown_with_a_tunnel_and_without_the_token() -> None:
    said = notebook.lines("node1", SEEN, WAY, 8888)
    assert said[0] == "The notebook of anna on node1 is running until it is stopped or the node reboots."
    assert said[1].endswith(notebook.tunnel(WAY, "anna", SEEN["socket"], 8888))
    assert said[-1].endswith("anna@10.0.0.11 cat /var/lib/muster/users/anna/notebook/token")


def test_notebook_that_starts_at_boot_is_described() -> None:
    said = notebook.lines("node1", {**SEEN, "at_boot": True}, None, 8888)
    assert said == [
        "The notebook of anna on node1 is running and starts again after a reboot.",
        "It listens on /run/user/2001/muster-notebook/socket.",
    ]


def test_unresponsive_notebook_is_reported() -> None:
    (said,) = notebook.lines("node1", {**SEEN, "answers": False}, WAY, 8888)
    assert said.startswith("The notebook of anna on node1 is running but does not respond.")


def test_stopped_notebook_is_shown_with_its_start_command() -> None:
    assert notebook.lines("node1", {**SEEN, "running": False}, WAY, 8888) == [
        f"The notebook of anna on node1 is not running. To start it: {START}"
    ]


@pytest.mark.parametrize(
    ("seen", "way", "checked", "said"),
    [
        ({}, "ssh -N node1", False, "the notebook of anna on node1 is running; to connect: ssh -N node1"),
        ({}, "", False, "the notebook of anna on node1 is running"),
        ({"answers": False}, "ssh -N node1", False, "the notebook of anna on node1 is running but does not respond"),
        ({"running": False}, "", False, "the notebook of anna on node1 is not running"),
        ({"running": False}, "", True, "the notebook of anna on node1 would be started"),
        ({}, "", True, "the notebook of anna on node1 would be stopped"),
    ],
)
def test_last_line_has_the_notebook_status_and_the_ssh_command(seen: Any, way: str, checked: bool, said: str) -> None:
    assert notebook.said_last("node1", {**SEEN, **seen}, way, checked=checked) == said


ROOT = "/var/lib/muster/users"
ANSWER = {**SEEN, "there": True, "launch_user": True}
EVIL = "-oProxyCommand=touch /tmp/x"


def test_token_path_is_taken_from_the_inventory_not_from_the_answer() -> None:
    assert notebook.read("node1", ANSWER, "anna", ROOT) == SEEN
    assert notebook.read("node1", {**ANSWER, "token_file": "/x; rm -r ~"}, "", ROOT) == SEEN
    other = notebook.read("node1", {**ANSWER, "user": "a.b@corp"}, "", "/srv/u")
    assert other == {**SEEN, "user": "a.b@corp", "token_file": "/srv/u/a.b@corp/notebook/token"}


@pytest.mark.parametrize(
    ("part", "value", "asked", "said"),
    [
        ("user", EVIL, "anna", f'node1 returned the user "{EVIL}" instead of anna. '),
        ("user", "ben", "anna", 'node1 returned the user "ben" instead of anna. '),
        ("user", EVIL, "", f'node1 returned the invalid user name "{EVIL}". '),
        ("user", "a\n", "", "node1 returned the invalid user name "),
        ("user", "a b", "", "node1 returned the invalid user name "),
        ("user", "$(id)", "", "node1 returned the invalid user name "),
        ("user", None, "", "node1 returned the invalid user name "),
        ("socket", "/run/user/1/muster-notebook/socket -oProxyCommand=x", "anna", "node1 returned the invalid "),
        ("socket", "/run/user/../muster-notebook/socket", "anna", "node1 returned the invalid notebook "),
        (
            "socket",
            "/run/user/\N{ARABIC-INDIC DIGIT ONE}/muster-notebook/socket",
            "anna",
            "node1 returned the invalid notebook ",
        ),
        ("socket", "localhost:22", "anna", "node1 returned the invalid notebook "),
        ("running", "yes", "anna", 'node1 returned "yes" for running, which must be a boolean. '),
        ("answers", None, "anna", "node1 returned "),
    ],
)
def test_invalid_answer_is_rejected_with_the_node_name(part: str, value: Any, asked: str, said: str) -> None:
    with pytest.raises(notebook.AnswerError) as refused:
        notebook.read("node1", {**ANSWER, part: value}, asked, ROOT)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize("part", ["user", "socket", "running"])
def test_incomplete_answer_is_rejected(part: str) -> None:
    with pytest.raises(notebook.AnswerError):
        notebook.read("node1", {name: value for name, value in ANSWER.items() if name != part}, "", ROOT)


@pytest.mark.parametrize(
    "line", [notebook.tunnel(WAY, EVIL, SEEN["socket"], 8889), notebook.token(WAY, EVIL, "/a b/token")]
)
def test_ssh_treats_the_argument_after_its_options_as_the_host(line: str) -> None:
    """The test lets ssh parse the command without connecting."""
    program, *words = shlex.split(line)
    asked = subprocess.run([program, "-G", *words], capture_output=True, text=True, check=False)
    assert "proxycommand" not in asked.stdout
    assert asked.returncode != 0  # no user is called that


def test_ssh_accepts_the_commands_for_a_user() -> None:
    for line in (notebook.tunnel(WAY, "anna", SEEN["socket"], 8889), notebook.token(WAY, "anna", "/a b/token")):
        program, *words = shlex.split(line)
        asked = subprocess.run([program, "-G", *words], capture_output=True, text=True, check=True)
        assert {"user anna", "hostname 10.0.0.11", "proxyjump bastion"} <= set(asked.stdout.splitlines())
    assert (
        notebook.token(notebook.SshAccess("h"), "anna", "/a b/token") == """ssh -- anna@h cat ''"'"'/a b/token'"'"''"""
    )
