"""The container image of a launch: validation of the options, and findings about the image on the nodes.

cases/image_problems: options -> all problems. cases/image_judge: differences from a healthy node -> the findings.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from cases import cases
from launch_shapes import a_plan, a_request
from muster.launch import image

FIT: dict[str, Any] = {
    "podman": "4.9.3",
    "why": "",
    "crun": True,
    "id": "",
    "gpus": False,
    "folders": {},
    "removed": [],
}
HAS: Any = {"python": [3, 12, 3], "torch": "2.13.0", "nccl": "2.29.3", "error": "", "unsafe": ""}


@cases(__file__, "image_problems")
def test_invalid_image_options_are_reported(case: dict[str, Any]) -> None:
    found = image.problems_of(
        case["image"],
        case.get("folders", []),
        environment=case.get("environment", ""),
        script=case.get("script", ""),
    )
    assert found == case["expect"]


@cases(__file__, "image_judge")
def test_image_facts_of_a_node_produce_the_expected_findings(case: dict[str, Any]) -> None:
    seen: Any = {**FIT, **case.get("seen", {})}
    found = image.judge("node1", seen, gpus=case.get("gpus", False))
    assert [f"{one.id} {one.status}: {one.summary}" for one in found] == case["expect"]
    assert [one.fix["command"] for one in found if "command" in one.fix] == case.get("commands", [])


def test_node_with_a_different_image_is_reported() -> None:
    (found,) = image.differing({"node1": "a" * 64, "node2": "b" * 64, "node3": "a" * 64})
    assert (found.node, found.status) == ("node2", "fail")
    assert found.summary == "the image is bbbbbbbbbbbb, but node1 has aaaaaaaaaaaa"
    assert image.differing({"node1": "a" * 64, "node2": "a" * 64}) == []
    assert [one.node for one in image.differing({"node1": "a" * 64, "node2": "b" * 64})] == ["node2"]


@pytest.mark.parametrize(
    ("seen", "torch", "expected"),
    [
        ({}, True, []),
        ({"torch": ""}, False, []),
        ({"torch": ""}, True, ["the image's python3 has no torch"]),
        ({"python": [3, 9, 2]}, True, ["the image's Python is 3.9.2, but a launch requires 3.10 or newer"]),
        ({"error": "no such file"}, True, ["Python does not run in the image: no such file"]),
        ({"unsafe": "it brings a device file"}, True, ["the image is not safe to run: it brings a device file"]),
    ],
)
def test_unsuitable_versions_in_an_image_are_reported(seen: dict[str, Any], torch: bool, expected: list[str]) -> None:
    says: Any = {**HAS, **seen}
    assert [one.summary for one in image.judge_versions("node1", says, torch=torch)] == expected


RIGHT = {"python": [3, 12, 3], "torch": "2.13.0+cu130", "nccl": ""}


def read(text: str) -> Any:
    return image.read_versions({"text": text, "error": "", "unsafe": ""})


def test_versions_are_read_from_the_images_output() -> None:
    assert read(json.dumps(RIGHT)) == {**RIGHT, "error": "", "unsafe": ""}


@pytest.mark.parametrize(
    "text",
    [
        *("", "no JSON", "[]", "3", "[" * 400, json.dumps({"python": [3, 12, 3]})),
        *(
            json.dumps({**RIGHT, "torch": told})
            for told in ("2.13\x1b[2J", "2.13\nREADY", "2.13 run this", "9" * 65, 2.13)
        ),
        *(json.dumps({**RIGHT, "nccl": told}) for told in (None, "2\n", ["2"])),
        *(
            json.dumps({**RIGHT, "python": told})
            for told in ([], [3, 12], [3, 12, "3"], [3, 12, True], [3, 12, 10**9], 3)
        ),
    ],
)
def test_invalid_version_output_is_quoted(text: str) -> None:
    found = read(text)
    assert found["error"] == f"unexpected output of Python: {text!r}"
    assert (found["python"], found["torch"], found["nccl"]) == ([], "", "")


def test_only_the_outermost_of_nested_folders_is_mounted() -> None:
    assert image.shown("/data/work", ["/data", "/srv/set/"], ["/srv/set/more", "/srv/sets"]) == [
        "/data",
        "/srv/set",
        "/srv/sets",
    ]
    assert image.shown("", [], []) == []


def test_plan_uses_the_python_of_the_image() -> None:
    image = {"source": "/srv/train.tar", "id": "a" * 64, "folders": ["/data"]}
    plan = a_plan(1, a_request(script="/workspace/train.py", image=image))
    (entry,) = plan.nodes
    assert plan.image == image
    assert entry.argv[:4] == ["python3", "-m", "torch.distributed.run", "--nnodes=1"]
    assert entry.argv[-1] == "/workspace/train.py"
    assert "PATH" not in entry.env
    assert entry.env["HOME"] == entry.work_dir
    assert "HOME" not in entry.from_node
    assert entry.environment == ""
    assert plan.launcher == "torchrun"
