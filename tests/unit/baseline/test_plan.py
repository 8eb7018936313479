"""Every file in cases/ describes one node: the request, the node's state, and the expected plan.

If `seen` is omitted, the node is already in the requested state. Kernel settings and units are given in full.
"""

from __future__ import annotations

from typing import Any

import pytest

from cases import cases
from muster.baseline import model
from muster.baseline.plan import installed_packages, make_plan, ports, sysctl_text, sysctl_value

EVERYTHING = {
    "packages": [],
    "hold": [],
    "configure": False,
    "files": [],
    "sysctl": [],
    "reexec": False,
    "units": [],
    "user": None,
    "differences": [],
    "left_out": [],
    "problems": [],
}


def request_of(given: dict[str, Any]) -> model.BaselineRequest:
    units = [{**unit, "restart_if_older_than": tuple(unit.get("restart_if_older_than", ()))} for unit in given["units"]]
    user = given.get("user")
    return model.BaselineRequest(
        packages=tuple(given.get("packages", ())),
        held=tuple(given.get("held", ())),
        refused=given.get("refused", {}),
        files=tuple(model.BaselineFile(**file) for file in given.get("files", ())),
        sysctl=tuple(model.SysctlKey(**key) for key in given.get("sysctl", ())),
        sysctl_file=given.get("sysctl_file", ""),
        units=tuple(model.BaselineUnit(**unit) for unit in units),
        manager=given.get("manager", {}),
        login=given.get("login", {}),
        user=model.BaselineAccount(**{**user, "never_in": tuple(user.get("never_in", ()))}) if user else None,
    )


def seen_of(given: dict[str, Any]) -> model.BaselineState:
    account = given.get("account")
    return model.BaselineState(
        # A plain name is a package whose version does not matter.
        packages=dict(entry.partition("=")[::2] for entry in given.get("packages", ())),
        held=frozenset(given.get("held", ())),
        files={
            path: model.BaselineFileState(**file) if file else None for path, file in given.get("files", {}).items()
        },
        changed=given.get("changed", {}),
        now=given.get("now", 1000.0),
        sysctl=given.get("sysctl", {}),
        read_only=frozenset(given.get("read_only", ())),
        units=given.get("units", {}),
        manager=given.get("manager", {}),
        login=given.get("login", {}),
        account=model.AccountState(**{**account, "groups": tuple(account.get("groups", ()))}) if account else None,
        home=tuple(given["home"]) if "home" in given else None,
        owners=given.get("owners", {}),
        capabilities=given.get("capabilities", -1),
        driver=given.get("driver", False),
        dpkg_interrupted=given.get("dpkg_interrupted", False),
    )


@cases(__file__, "make_plan")
def test_baseline_plan_matches_the_case(case: dict[str, Any]) -> None:
    request = request_of({"units": [], **case["request"]})
    plan = make_plan(request, seen_of(case.get("seen", {})), verifies=case.get("verifies", False))
    found = {
        "packages": plan.packages,
        "hold": plan.hold,
        "configure": plan.configure,
        "files": [file.path for file in plan.files],
        "sysctl": plan.sysctl,
        "reexec": plan.reexec,
        "units": [f"{unit['name']}{' restart' if unit['restart'] else ''}" for unit in plan.units],
        "user": plan.user.name if plan.user else None,
        "differences": plan.differences,
        "left_out": [f"{each['id']}: {each['why']}" for each in plan.left_out],
        "problems": plan.problems,
    }
    assert found == {**EVERYTHING, **case["plan"]}
    assert plan.needed is bool(case["plan"].get("differences"))
    assert (plan.files[-1].content if plan.files else None) == case.get("text")
    assert (plan.before, plan.after) == (case.get("before", []), case.get("after", []))


def test_only_fully_installed_packages_count_as_installed() -> None:
    status = """Package: chrony
Status: install ok installed
Priority: optional
Description: Status: deinstall ok config-files

Package: ntp
Status: deinstall ok config-files

Package: held
Architecture: amd64
Status: hold ok installed
Version: 1:4.6.1-1
Conffiles:
 /etc/held.conf 0123

Package: half
Status: install ok half-configured

Package: unpacked
Status: install ok unpacked
"""
    assert installed_packages(status) == ({"chrony": "", "held": "1:4.6.1-1"}, frozenset({"held"}))
    assert installed_packages("") == ({}, frozenset())


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", ""),
        ("29500", "29500"),
        (",29500", "29500"),
        ("29500,29500", "29500"),
        ("8080,29500-29510,29505-29515", "8080,29500-29515"),
        ("2,1,3", "1-3"),
        ("1-2, 4-5", "1-2,4-5"),
    ],
)
def test_reserved_ports_use_the_notation_of_the_kernel(text: str, wanted: str) -> None:
    assert ports(text) == wanted


def test_plan_is_empty_after_it_was_applied() -> None:
    keys = (
        model.SysctlKey("net.core.somaxconn", "16384", "at_least"),
        model.SysctlKey("net.ipv4.tcp_wmem", "4096 16384 33554432", "at_least"),
        model.SysctlKey("net.ipv4.ip_local_reserved_ports", "29500", "contains"),
    )
    before = {"net.core.somaxconn": "20000", "net.ipv4.tcp_wmem": "8192\t8192\t4194304", keys[2].key: "30000-30010"}
    after: dict[str, str | None] = {key.key: sysctl_value(key, before[key.key]) for key in keys}
    assert after == {
        "net.core.somaxconn": "20000",
        "net.ipv4.tcp_wmem": "8192 16384 33554432",
        keys[2].key: "29500,30000-30010",
    }
    request = model.BaselineRequest(sysctl=keys, sysctl_file="/etc/sysctl.d/x.conf")
    text = sysctl_text(keys, before)
    assert text == sysctl_text(keys, after)
    assert not make_plan(
        request, model.BaselineState(sysctl=after, files={"/etc/sysctl.d/x.conf": model.BaselineFileState(text)})
    ).needed
