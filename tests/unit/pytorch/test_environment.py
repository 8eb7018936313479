"""Every file in cases/ contains one decision: the request, the inspection result, and the expected result.

plan: request, observed -> plan. judge: request, look -> findings. pip: pip's output -> the error and the fix. request:
options of the inventory -> requirements and pip's arguments, or the error.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cases import cases
from muster.pytorch import judge, pip, request
from muster.pytorch.plan import Environment, Observed, plan
from muster.pytorch.request import EnvironmentRequest, Requirement

REQUEST = {"torch_version": "2.13.0", "variant": "auto", "gpus": 0, "packages": ["numpy==2.3.5"], "python": "3.11"}
SOURCES = {"index_url": "auto", "extra_index_urls": [], "find_links": [], "offline_dir": ""}


def request_of(case: dict[str, Any]) -> EnvironmentRequest:
    return request.make_request(**{**REQUEST, **case.get("request", {})})


@cases(__file__, "request")
def test_environment_request_matches_the_case(case: dict[str, Any]) -> None:
    sources = {**SOURCES, **case.get("sources", {})}
    if "refusal" in case:
        with pytest.raises(request.EnvironmentRequestError) as refusal:
            pip.pip_sources(request_of(case).variant, **sources)
        assert str(refusal.value) == case["refusal"]
        return
    asked = request_of(case)
    assert [str(pin) for pin in asked.requirements] == case["requirements"]
    assert pip.pip_sources(asked.variant, **sources) == case["pip"]
    assert request.is_environment(asked.name)


@cases(__file__, "plan")
def test_environment_plan_matches_the_case(case: dict[str, Any]) -> None:
    asked = request_of(case)
    good = {pin.name: pin.version for pin in asked.requirements}

    def named(text: str) -> str:
        return text.replace("REQUEST", asked.name)

    def environment(given: dict[str, Any] | None) -> Environment | None:
        if given is None:
            return None
        return Environment(
            given.get("python", asked.python), given.get("packages", good), tuple(given.get("faults", ()))
        )

    seen = case["observed"]
    observed = Observed(
        link=named(seen.get("link", "")),
        current=named(seen.get("current", "")),
        environments={named(name): environment(given) for name, given in seen.get("environments", {}).items()},
        in_use=frozenset(map(named, seen.get("in_use", []))),
    )
    found = plan(asked, observed, case.get("keep", 1))
    expected = {"reasons": [], "discard": [], "build": False, "switch": False, "retire": [], **case["plan"]}
    assert {
        "target": found.target,
        "reasons": list(found.reasons),
        "discard": list(found.discard),
        "build": found.build,
        "switch": found.switch,
        "retire": list(found.retire),
    } == {
        name: named(value)
        if isinstance(value, str)
        else [named(v) for v in value]
        if isinstance(value, list)
        else value
        for name, value in expected.items()
    }


@cases(__file__, "judge")
def test_environment_findings_match_the_case(case: dict[str, Any]) -> None:
    findings = judge.judge("node1", request_of(case), case["look"])
    assert [f"{each.id} {each.status}: {each.summary}" for each in findings] == case["findings"]
    assert all(each.fix["text"] for each in findings if each.status in ("fail", "warn"))


@cases(__file__, "pip")
def test_pip_errors_are_explained(case: dict[str, Any]) -> None:
    asked = replace(request_of(case), locked=case.get("locked", {}))
    what, fix = pip.explain_pip(case["output"], asked)
    assert {"what": what, "fix": fix} == {"what": case["what"], "fix": case["fix"]}


def test_only_listed_packages_can_be_built_from_source() -> None:
    assert pip.kinds([]) == ["--only-binary=:all:"]
    assert pip.kinds(["flash-attn", "x"]) == ["--only-binary=:all:", "--no-binary=flash-attn,x"]
    for name in (":all:", "x --pre", "", "x,:all:"):
        with pytest.raises(request.EnvironmentRequestError):
            pip.kinds([name])


@pytest.mark.parametrize(
    "text", ["x @ https://h/x.tar.gz", "x[a @ https://h/x.whl]==1", "file:///x.whl", "--pre", "x>=1"]
)
def test_packages_without_exact_pins_are_rejected(text: str) -> None:
    with pytest.raises(request.EnvironmentRequestError, match="is not an exact pin"):
        request.parse_requirement(text, "3.12")


@pytest.mark.parametrize(
    ("installed", "wanted", "same"),
    [
        ("2.13.0+cpu", "2.13.0+cpu", True),
        ("2.13.0", "2.13.0+cpu", False),
        ("2.13.0+cu130", "2.13.0", True),
        ("2.13.0+cu130", "2.13.0+cpu", False),
        ("2.3.0", "2.3", True),
        ("2.30", "2.3", False),
        ("1.10", "1.1", False),
        ("2.0.0+cpu", "2+cpu", True),
    ],
)
def test_equal_versions_in_different_notations_are_recognized(installed: str, wanted: str, *, same: bool) -> None:
    assert request.same_version(installed, wanted) is same


def test_environment_name_depends_on_its_content() -> None:
    assert request_of({}).name == request_of({}).name
    others = [{"packages": ["numpy==2.3.4"]}, {"variant": "cu126"}, {"torch_version": "2.12.1"}, {"python": "3.12"}]
    assert len({request_of({"request": other}).name for other in [{}, *others]}) == 5
    two = ["b==1", "a==1"]
    assert request_of({"request": {"packages": two}}).name == request_of({"request": {"packages": two[::-1]}}).name


def test_folders_not_created_by_muster_are_not_environments() -> None:
    assert not any(map(request.is_environment, ["", "current", "mine", "2.13.0", "2.13.0-cpu-py3.11-xyz"]))


def test_package_names_are_normalized_as_in_pip() -> None:
    pin = request.parse_requirement("Typing_Extensions == 4.15.0", "3.11")
    assert pin == Requirement("typing-extensions", "4.15.0")
    assert pin.met_by({"typing-extensions": "4.15.0"})
