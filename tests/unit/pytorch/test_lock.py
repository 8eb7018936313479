"""Every file in cases/ contains one decision about the lock.

choose: lock, request of a node -> build, whether the lock contains that build, and the note for the user. refuse: an
edited lock -> the error. update: lock, new environment, requests of all nodes -> the environments in the new lock, and
the described changes.
"""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from cases import cases
from muster.pytorch import choice as choosing
from muster.pytorch import lock
from muster.pytorch.choice import Ask
from muster.pytorch.lock import LockError, Wheel, WheelSection
from muster.pytorch.plan import Environment, shortcomings
from muster.pytorch.wheels import WheelNeed, downloader, holders

PYTHON, MACHINE = "3.12", "x86_64"
ASK = {"torch_version": "2.13.0", "variant": "auto", "gpus": 0, "packages": ["numpy==2.3.5"]}


def ask_of(given: dict[str, Any]) -> Ask:
    asked = {**ASK, **given}
    return Ask(**{**asked, "packages": tuple(asked["packages"])})


def section_of(given: dict[str, Any]) -> WheelSection:
    """Return the environment that a case describes: its build, and the differences from the default."""
    variant, python = given["variant"], given.get("python", PYTHON)
    gpus = 0 if variant == "cpu" else 8
    request = ask_of({**given.get("ask", {}), "variant": variant, "gpus": gpus}).request(python)
    versions = {"torch": request.main.version, **{pin.name: pin.version for pin in request.requirements[1:]}}
    versions |= given.get("wheels", {"sympy": "1.14.0"})
    wheels = [make_wheel(name, version) for name, version in versions.items()]
    return lock.make_section(request, given.get("machine", MACHINE), wheels)


def make_wheel(name: str, version: str) -> Wheel:
    return Wheel(name, version, hashlib.sha256(f"{name} {version}".encode()).hexdigest(), f"{name}-{version}-any.whl")


def told(section: WheelSection) -> str:
    return f"{section.title}: {', '.join(section.asked)}"


@cases(__file__, "choose")
def test_chosen_lock_section_matches_the_case(case: dict[str, Any]) -> None:
    sections = [section_of(given) for given in case["lock"]]
    choice = choosing.choose(sections, ask_of(case["ask"]), case.get("python", PYTHON), case.get("machine", MACHINE))
    found = {"variant": choice.request.variant, "locked": told(choice.section) if choice.section else None}
    assert found == {"variant": case["variant"], "locked": case["locked"]}
    assert choice.note == case.get("note", "")
    assert choice.request.locked == ({w.name: w.version for w in choice.section.wheels} if choice.section else {})


def test_reviewed_section_is_used_only_if_none_is_locked_and_the_pins_match() -> None:
    shipped = section_of({"variant": "cuda", "wheels": {"sympy": "1.13.0"}})
    own = section_of({"variant": "cuda", "wheels": {"sympy": "1.14.0"}})
    ask = {"gpus": 8}

    def chosen(sections: list[WheelSection], python: str = PYTHON, **changed: Any) -> WheelSection | None:
        return choosing.choose(sections, ask_of({**ask, **changed}), python, MACHINE, [shipped]).section

    assert chosen([]) == chosen([], auto="cuda") == shipped
    assert chosen([own]) == own
    assert chosen([], auto="cu126") is None, "the GPUs need another build"
    assert chosen([], gpus=0) is None
    assert chosen([], packages=["numpy==2.3.4"]) is None
    assert chosen([], "3.13") is None


@cases(__file__, "refuse")
def test_edited_lock_is_rejected(case: dict[str, Any]) -> None:
    text = lock.render([section_of({"variant": "cpu"}), section_of({"variant": "cu130"})])
    assert len(lock.parse(text)) == 2
    edited = case["text"] if "text" in case else text.replace(case["from"], case["to"])
    assert edited != text
    with pytest.raises(LockError) as refusal:
        lock.parse(edited)
    assert str(refusal.value) == case["refusal"]


@cases(__file__, "update")
def test_updated_lock_matches_the_case(case: dict[str, Any]) -> None:
    before = [section_of(given) for given in case["lock"]]
    new = section_of(case["new"])
    after = choosing.updated(before, new, [ask_of(given) for given in case["asks"]])
    # In the order of the file, which is sorted by title.
    assert [told(section) for section in lock.parse(lock.render(after))] == case["after"]
    assert lock.changes(before, after, new) == case["changes"]


def test_rendered_lock_can_be_parsed_in_any_order() -> None:
    sections = [section_of(given) for given in ({"variant": "cpu"}, {"variant": "cu130", "python": "3.9"})]
    text = lock.render(sections)
    assert lock.render(sections[::-1]) == text
    assert set(lock.parse(text)) == set(sections)
    assert lock.render(lock.parse(text)) == text
    assert [lock.section_of(section.as_dict()) for section in sections] == sections


@pytest.mark.parametrize(
    "change",
    [
        {"wheels": [{"name": "tiny", "version": "1.0", "sha256": "0" * 64, "file": "../../tiny-1.0-any.whl"}]},
        {"wheels": [{"name": "tiny", "version": "1.0", "sha256": "0" * 64, "file": "tiny-1.0-any.whl\n--pre"}]},
        {"wheels": [{"name": "tiny", "version": "1.0", "sha256": "0" * 64, "file": "torch-1.0-any.whl"}]},
        {"wheels": [{"name": "tiny", "version": "1.0", "sha256": "0" * 63, "file": "tiny-1.0-any.whl"}]},
        {"wheels": [{"name": "--pre", "version": "1.0", "sha256": "0" * 64, "file": "pre-1.0-any.whl"}]},
        {"wheels": [{"name": "tiny", "version": "1 @ http://x", "sha256": "0" * 64, "file": "tiny-1.0-any.whl"}]},
        {"wheels": [{"name": "tiny", "version": 1, "sha256": "0" * 64, "file": "tiny-1.0-any.whl"}]},
        {"wheels": [{"name": "tiny", "url": "https://x/tiny-1.0-any.whl"}]},
        {"wheels": 5000 * [{"name": "tiny", "version": "1.0", "sha256": "0" * 64, "file": "tiny-1.0-any.whl"}]},
        {"asked": ["torch==2.13.0", "--index-url=http://x"]},
        {"asked": [f"p{number}==1" for number in range(5000)]},
        {"machine": "x86_64\n--extra-index-url http://x"},
        {"variant": "../cpu"},
        {"python": ["3.12"]},
        {"asked": None},
    ],
)
def test_sections_from_nodes_are_validated_like_the_lock_file(change: dict[str, Any]) -> None:
    given = section_of({"variant": "cpu"}).as_dict()
    assert lock.section_of(given)
    with pytest.raises(LockError):
        lock.section_of({**given, **change})


def test_oversized_file_is_rejected() -> None:
    with pytest.raises(LockError):
        lock.parse("# \n" * lock.MOST)


def test_empty_lock_contains_no_sections() -> None:
    assert lock.parse("") == ()
    assert lock.render([]) == ""


def test_lock_section_is_rendered_as_a_requirements_file() -> None:
    first, *_ = section_of({"variant": "cpu"}).requirements.splitlines()
    assert first.startswith("numpy==2.3.5 --hash=sha256:")
    assert first.endswith("  # numpy-2.3.5-any.whl")


@pytest.mark.parametrize(
    ("packages", "unlocked"),
    [
        ({}, []),
        ({"pip": "25.3", "setuptools": "80.9.0"}, []),
        ({"sympy": "1.13.3"}, ["the lock has sympy 1.14.0, but 1.13.3 is installed"]),
        ({"sympy": None}, ["the lock has sympy 1.14.0, but none is installed"]),
        ({"ipython": "9.7.0"}, ["ipython 9.7.0 is installed but not in the lock (add it with pytorch_packages)"]),
    ],
)
def test_differences_from_the_lock_are_reported(packages: dict[str, str | None], unlocked: list[str]) -> None:
    section = section_of({"variant": "cpu"})
    request = choosing.with_lock(ask_of({}).request(PYTHON), section)
    live = {**request.locked, **packages}
    environment = Environment(PYTHON, {name: version for name, version in live.items() if version})
    assert shortcomings(request, environment) == unlocked


NEEDS = {
    "n1": WheelNeed(build=False, key="a", here=True),
    "n2": WheelNeed(build=True, key="a", here=False),
    "n3": WheelNeed(build=True, key="b", here=False),
    "n4": WheelNeed(build=True, key="a", here=True),
    "n5": WheelNeed(build=True, key="a", here=False),
}


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        (set(), {"a": "n4", "b": "n3"}),
        pytest.param({"n4"}, {"a": "n2", "b": "n3"}, id="one failed, so the play goes on without it"),
        ({"n2", "n3", "n4"}, {"a": "n5", "b": ""}),
    ],
)
def test_downloader_is_the_first_node_that_needs_the_wheels(gone: set[str], expected: dict[str, str]) -> None:
    needs = {name: need for name, need in NEEDS.items() if name not in gone}
    assert {key: downloader(key, needs) for key in expected} == expected


def test_nodes_that_have_the_wheels_come_before_other_nodes() -> None:
    nodes = ["n0", "n1", "n2", "n3", "n4", "n5"]
    assert holders("n4", "a", NEEDS, nodes) == ["n1", "n0", "n2"]
    assert holders("n0", "b", NEEDS, nodes) == ["n1", "n2", "n3"]
