"""Every file in cases/ describes one node: the requested toolkits, the installed toolkits, and the expected plan.

toolkits: output of nvcc by version. by_hand: toolkits that were not installed from packages.
"""

from __future__ import annotations

from typing import Any

from cases import cases
from muster.gpu_stack import cuda_toolkits
from muster.gpu_stack.cuda_toolkits import ToolkitFolder, ToolkitsState


def seen_of(given: dict[str, Any]) -> ToolkitsState:
    folders = {
        version: ToolkitFolder(version not in given.get("by_hand", []), said or "", "" if said else "nvcc is not there")
        for version, said in given.get("toolkits", {}).items()
    }
    return ToolkitsState(folders, given.get("link", ""), given.get("target", ""), given.get("folder_instead", False))


@cases(__file__, "cuda_toolkits")
def test_toolkit_plan_matches_the_case(case: dict[str, Any]) -> None:
    plan = cuda_toolkits.make_plan(
        case["versions"], case.get("default", ""), seen_of(case.get("seen", {})), verifies=case.get("verifies", False)
    )
    assert plan.packages == case.get("packages", [])
    assert plan.default == case.get("leads_to", "")
    assert plan.differences == case.get("differences", [])
    assert plan.problems == case.get("problems", [])
    assert plan.notes == case.get("notes", [])


def test_versions_are_compared_by_number() -> None:
    assert cuda_toolkits.newest(["12.8", "13.0", "12.10"]) == "13.0"
    assert cuda_toolkits.newest(["12.8", "12.10"]) == "12.10"
    assert cuda_toolkits.newest([]) == ""


def test_toolkit_release_is_parsed_from_real_nvcc_output() -> None:
    said = "Cuda compilation tools, release 13.0, V13.0.88\nBuild cuda_13.0.r13.0/compiler.36424714_0\n"
    assert ToolkitFolder(nvcc=said).release == "13.0"
