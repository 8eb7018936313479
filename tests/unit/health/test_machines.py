"""GPU findings about complete machines of types common in labs, from all data of a node.

machine: a description. gpus: the number in the inventory. virtual: the output of systemd-detect-virt. lines: of the
kernel log. found: "status id" of every finding about GPUs, NVLink, fabric manager and bus; a healthy machine has one
pass. Other keys: see tests/unit/gpu_info.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from cases import cases, document_of
from gpu_looks import look_of
from muster.health import node
from muster.health.facts import facts
from muster.verdict.families import family
from muster_node.looks import kernel_log

HERE = Path(__file__).parent
RECORDED = document_of(HERE / "recorded/node.yml")
REQUEST = document_of(HERE / "recorded/request.yml")
OF_GPUS = ("gpu", "nvlink", "fabric_manager", "pci")


@cases(__file__, "machines")
def test_gpu_findings_of_a_whole_machine_match_the_case(case: dict[str, Any]) -> None:
    looks = copy.deepcopy(RECORDED)
    looks["system"]["virt"] = case.get("virtual", "none")
    lines = case.get("lines", [{"age": 90000, "text": "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64"}])
    looks["kernel_log"] = {"why": "", "source": "dmesg", "read": 9, "reach": None, "cut": {}}
    looks["kernel_log"]["lines"] = [kernel_log.line_of(line["text"], line["age"]) for line in lines]
    looks["gpu"] = look_of(case)
    request = {**REQUEST, "gpus": case["gpus"], "nproc": case["gpus"]}
    answer = node.judge(facts(looks, request), request)
    found = [f"{one['status']} {one['id']}" for one in answer["findings"] if family(one["id"]) in OF_GPUS]
    assert found == case["found"], [one["summary"] for one in answer["findings"]]
