"""Parsing of the nodes to onboard from the options, and the reported problems."""

from __future__ import annotations

from typing import Any

import pytest

from cases import cases
from muster.onboard.request import MEANT, NewNode, OnboardingOptions, asked, of_ssh, problems_of_ssh, resolved
from muster.onboard.standing import problems, standing


@cases(__file__, "asked")
def test_requested_nodes_match_the_case(case: dict[str, Any]) -> None:
    found, wrong = asked(OnboardingOptions(**case["given"]))
    nodes = case.get("nodes", [])
    expected = [NewNode(one["name"], one.get("address", ""), one.get("variables", {}), one["where"]) for one in nodes]
    assert wrong == case.get("problems", [])
    assert wrong or found == expected


@cases(__file__, "resolved")
def test_resolved_nodes_match_the_case(case: dict[str, Any]) -> None:
    nodes = [NewNode(**one) for one in case["nodes"]]
    assert resolved(nodes, case["looked_up"]) == (case["found"], case.get("problems", []))


@cases(__file__, "standing")
def test_state_in_the_inventory_is_checked(case: dict[str, Any]) -> None:
    asked_for = [{"name": name, "variables": {"ansible_host": address}} for name, address in case["asked"].items()]
    known = {name: {"quarantined": False, "reason": "", **own} for name, own in case["known"].items()}
    assert problems(asked_for, known, case.get("elsewhere", {})) == case.get("problems", [])
    if not case.get("problems"):
        assert {name: standing(known.get(name)) for name in case["asked"]} == case["standing"]


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({"hostname": "10.0.0.9"}, ("10.0.0.9", {})),
        (
            {"hostname": "10.0.0.9", "port": "2222", "user": "ubuntu", "identityfile": "~/.ssh/lab", "proxyjump": "g"},
            (
                "10.0.0.9",
                {
                    "ansible_port": 2222,
                    "ansible_user": "ubuntu",
                    "ansible_ssh_private_key_file": "~/.ssh/lab",
                    "ansible_ssh_common_args": "-o ProxyJump=g",
                },
            ),
        ),
    ],
)
def test_ssh_settings_become_inventory_variables(own: dict[str, str], expected: tuple[str, dict[str, Any]]) -> None:
    plain = {"hostname": "x", "port": "22", "user": "anna", "identityfile": "~/.ssh/id_rsa"}
    assert of_ssh({"port": "22", "user": "anna", "identityfile": "~/.ssh/id_rsa", **own}, plain) == expected


@pytest.mark.parametrize(
    ("own", "problem"),
    [
        ({"user": "root", "proxyjump": "none"}, ""),
        ({"user": "LAB\\anna.b", "proxyjump": "me@bastion.lab:22,ssh://[fd00::1]:2222,10.0.0.1,jump-%h"}, ""),
        ({"user": "a;touch x"}, "config: user of gpu1 is 'a;touch x'. Write a user name."),
        ({"user": "-oProxyCommand=x"}, "config: user of gpu1 is '-oProxyCommand=x'. Write a user name."),
        *(
            ({"proxyjump": hop}, f"config: proxyjump of gpu1 is {hop!r}. Write {MEANT['proxyjump']}.")
            for hop in ("me;touch@b", "a -oProxyCommand=x", "-oProxyCommand=x", "b`x`", "b,$(x)", '"a')
        ),
    ],
)
def test_values_that_ssh_can_pass_to_a_shell_are_rejected(own: dict[str, str], problem: str) -> None:
    found = list(problems_of_ssh(NewNode("gpu1", "", {}, "config"), own))
    assert found == ([problem] if problem else [])
