"""Copying of a project to the nodes: time, store and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from answering_nodes import AnsweringNodes
from launch_shapes import a_plan, a_settings, a_user_request
from muster.launch.occupied import TAKEN
from muster.launch.preflight import DISK, Prepared
from muster_controller.launch.project import Project
from muster_controller.launch.sending import Sending
from muster_controller.playbook.interruption import Interruption
from muster_node.distribution import manifest
from muster_node.distribution.manifest import ManifestFile

if TYPE_CHECKING:
    from muster.verdict.finding import Finding

FILES = (ManifestFile("train.py", False, 1, "a" * 64),)
PROJECT = Project("/home/ada/p", manifest.render(FILES), FILES)
PLAN = a_plan(2, a_user_request("ada"))
HAS_IT = {"missing": [], "room": 10**9, "port_free": True, "error": ""}


def sending(second: Any = HAS_IT, project: Project | None = PROJECT, times: int = 1) -> tuple[Sending, AnsweringNodes]:
    answers = {("node1", "stored"): [HAS_IT] * times, ("node2", "stored"): [second] * times}
    nodes = AnsweringNodes(answers)
    settings = a_settings(project=project)
    return Sending(settings, nodes, lambda _text: None, Interruption()), nodes


def prepared(*findings: Finding) -> Prepared:
    return Prepared(PLAN, findings=list(findings))


def test_project_is_copied_once_to_the_store_of_the_launch_user() -> None:
    sent, nodes = sending()
    assert sent.after(prepared()).findings == []
    assert [(node, verb) for node, verb, _ in nodes.asked] == [("node1", "stored"), ("node2", "stored")]
    assert {payload["store"] for _, _, payload in nodes.asked} == {"/var/lib/muster/users/ada/launches/.muster-store"}
    assert sent.request == {"store": "/var/lib/muster/users/ada/launches/.muster-store", "digest": PROJECT.digest}
    sent.after(prepared())  # a waiting launch repeats its checks
    assert len(nodes.asked) == 2


@pytest.mark.parametrize(("check", "asked"), [(TAKEN, 2), (DISK, 0)])
def test_project_is_copied_while_the_launch_waits_unless_it_is_blocked(check: Any, asked: int) -> None:
    sent, nodes = sending()
    sent.after(prepared(check.fail("node1", "is so")))
    assert len(nodes.asked) == asked


def test_failed_copy_blocks_the_launch_and_is_reported() -> None:
    sent, _ = sending("sudo: a password is required")
    (finding,) = sent.after(prepared()).findings
    assert (finding.id, finding.status, finding.node) == ("launch.project", "fail", "node2")
    assert finding.summary == "the project was not copied: sudo: a password is required"
    small, _ = sending({**HAS_IT, "missing": ["a" * 64], "room": 3})
    (finding,) = small.after(prepared()).findings
    assert "/var/lib/muster/users/ada/launches/.muster-store does not have the 4 bytes of free space" in finding.summary


def test_copy_with_a_wrong_digest_is_reported() -> None:
    sent, _ = sending()
    assert sent.changed({"project": PROJECT.digest}) == ""
    for answer in ({}, {"project": ""}, {"project": "b" * 64}, {"project": None}):
        assert "differs from the project that was sent" in sent.changed(answer)


def test_launch_without_a_project_copies_no_files() -> None:
    sent, nodes = sending(project=None)
    sent.after(prepared())
    assert nodes.asked == []
    assert sent.request is None
    assert sent.changed({}) == ""
