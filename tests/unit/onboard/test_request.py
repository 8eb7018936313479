"""Which nodes a run was asked to onboard, and what is wrong with that."""

from __future__ import annotations

from typing import Any

import pytest

from cases import cases
from muster.onboard.request import Asked, Given, asked, of_ssh, resolved
from muster.onboard.standing import problems, standing


@cases(__file__, "asked")
def test_asked(case: dict[str, Any]) -> None:
    found, wrong = asked(Given(**case["given"]))
    nodes = case.get("nodes", [])
    expected = [Asked(one["name"], one.get("address", ""), one.get("variables", {}), one["where"]) for one in nodes]
    assert wrong == case.get("problems", [])
    assert wrong or found == expected


@cases(__file__, "resolved")
def test_resolved(case: dict[str, Any]) -> None:
    nodes = [Asked(**one) for one in case["nodes"]]
    assert resolved(nodes, case["looked_up"]) == (case["found"], case.get("problems", []))


@cases(__file__, "standing")
def test_what_the_inventory_says_already(case: dict[str, Any]) -> None:
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
def test_what_ssh_makes_of_a_host(own: dict[str, str], expected: tuple[str, dict[str, Any]]) -> None:
    plain = {"hostname": "x", "port": "22", "user": "anna", "identityfile": "~/.ssh/id_rsa"}
    assert of_ssh({"port": "22", "user": "anna", "identityfile": "~/.ssh/id_rsa", **own}, plain) == expected
