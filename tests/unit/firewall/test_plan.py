"""Each file in cases/ contains the firewall state of a node, a request, and the expected plan.

look: a state in recorded/, from a real node. edits: changes to that state, as {of, remove, add, replace}: removed
lines, appended lines, replaced text. request: other fields of FirewallRequest. heads: first line of the diff before and
after. found, now: all findings except passes, about the plan and about the current rules. record: differences of the
recorded state of ufw from that of the bare node.

cases/services: listeners: output of ss. connected, units: as in the state of a node. services: the services that would
be blocked, and why the run may block them. refusal: why the run must stop.

cases/forwarding: interfaces: their addresses. filter, nat: rules of iptables. route: rules of `ufw route`. networks:
networks whose packets would be dropped, and why the run may drop them.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cases import cases
from firewall_looks import LOOKS
from muster.firewall import judge, services
from muster.firewall import look as firewall_look
from muster.firewall import plan as firewall_plan
from muster.firewall.forwarding import forwarding_cut_off
from muster.firewall.model import Allowed, FirewallError, FirewallRequest

if TYPE_CHECKING:
    from muster.verdict.finding import Finding

SERVICES = yaml.safe_load((Path(__file__).parents[3] / "roles/firewall/files/services.yml").read_text())
KNOWN = services.read_known(SERVICES)
PLACES = {
    "iptables": ("said", "iptables", "out"),
    "addresses": ("said", "addresses", "out"),
    "ip6tables": ("said", "ip6tables", "out"),
    "listeners": ("said", "listeners", "out"),
    "user.rules": ("ufw", "files", "user.rules"),
    "before.rules": ("ufw", "files", "before.rules"),
    "ufw.conf": ("ufw", "conf"),
    "defaults": ("ufw", "defaults"),
}


def look_of(case: dict[str, Any]) -> firewall_look.FirewallState:
    raw = copy.deepcopy(LOOKS[case["look"]])
    for edit in case.get("edits", []):
        *folders, name = PLACES[edit["of"]]
        place = raw
        for folder in folders:
            place = place[folder]
        text = place[name]
        for line in edit.get("remove", []):
            assert f"{line}\n" in text, line
            text = text.replace(f"{line}\n", "")
        for old, new in edit.get("replace", {}).items():
            assert old in text, old
            text = text.replace(old, new)
        place[name] = text + "".join(f"{line}\n" for line in edit.get("add", []))
    raw |= {name: case[name] for name in ("connected", "units", "forwards", "sshd_ports") if name in case}
    if "record" in case:
        raw["record"] = json.dumps({"ufw": {**raw["ufw"], **case["record"]}})
    return firewall_look.read_look(raw)


def request_of(given: dict[str, Any], peers: int = 2) -> FirewallRequest:
    allowed = [
        Allowed((entry["port"],) * 2, (entry.get("proto", "tcp"),), tuple(entry["from"]), "metrics")
        for entry in given.get("allowed", [])
    ]
    addresses = {f"node{number}": f"10.0.{number // 200}.{10 + number % 200}" for number in range(2, peers + 2)}
    ports = (32768, 40959), (29400, 29599), 29500
    return FirewallRequest(
        "node1",
        "10.0.0.11",
        {} if given.get("leaves") else addresses,
        *ports,
        allowed=tuple(allowed),
        cut=frozenset(given.get("cut", [])),
        tight=given.get("tight", False),
        leaves=given.get("leaves", False),
    )


def step_in_words(step: firewall_plan.FirewallStep) -> str:
    if "run" in step:
        return " ".join(step["run"])
    return f"write {step['write']}" if "write" in step else f"remove {step['remove']}"


def undo_in_words(step: firewall_plan.Undo) -> str:
    return " ".join([*step["argv"], *([f"<{step['text']}"] if step["text"] else [])])


@cases(__file__, "plan")
def test_firewall_plan_matches_the_case(case: dict[str, Any]) -> None:
    look, request = look_of(case), request_of(case.get("request", {}))
    if "refusal" in case:
        with pytest.raises(FirewallError) as refusal:
            firewall_plan.make_plan(request, look)
        assert str(refusal.value) == case["refusal"]
        return
    plan = firewall_plan.make_plan(request, look)
    assert [step_in_words(step) for step in plan.steps] == case.get("steps", [])
    assert [undo_in_words(step) for step in plan.undo] == case.get("undo", [])
    # Replaced files are backed up first.
    assert {step.get("write") or step.get("remove") for step in plan.steps if "run" not in step} <= set(plan.files)
    assert [plan.before[0], plan.after[0]] == case["heads"]
    for name, lines in case.get("texts", {}).items():
        assert set(lines) <= set(plan.texts[name].splitlines())
    planned = judge.scene_planned(request, look, plan)
    findings = judge.judge(request, look, planned)
    findings += services.findings_of("node1", services.services_cut_off(request, look, planned, KNOWN))
    assert reported(findings) == case.get("found", [])
    findings = judge.judge(request, look, judge.scene_now(look)) + judge.judge_boot(request, look)
    assert reported(findings) == case.get("now", [])


@cases(__file__, "services")
def test_services_that_would_be_blocked_match_the_case(case: dict[str, Any]) -> None:
    edits = [{"of": "listeners", "add": case["listeners"]}, *case.get("edits", [])]
    look = look_of({"look": "bare", **case, "edits": edits})
    request = request_of(case.get("request", {}))
    planned = judge.scene_planned(request, look, firewall_plan.make_plan(request, look))
    found = services.services_cut_off(request, look, planned, KNOWN)
    assert [f"{one.in_words}: {one.why or 'stop'}" for one in found] == case["services"]
    assert services.refusal({"node1": found}).splitlines() == case.get("refusal", [])


@cases(__file__, "forwarding")
def test_forwarded_packets_that_would_be_dropped_match_the_case(case: dict[str, Any]) -> None:
    rules = ["*filter", *case.get("filter", []), "*nat", *case.get("nat", [])]
    links = [{"ifname": name, "addr_info": [{"local": one}]} for name, one in case.get("interfaces", {}).items()]
    text = "".join(f"{json.dumps(link)}, " for link in links)
    edits = [
        {"of": "iptables", "add": rules},
        {"of": "addresses", "replace": {'[{"ifname": "lo"': f'[{text}{{"ifname": "lo"'}},
        {"of": "user.rules", "add": ["*filter", *case.get("route", [])]},
    ]
    look = look_of(
        {"look": "bare", "forwards": {"ip": "1", "ip6": "0"}, **case, "edits": [*edits, *case.get("edits", [])]}
    )
    request = request_of(case.get("request", {}))
    found = forwarding_cut_off(request, look, firewall_plan.make_plan(request, look), SERVICES["forwarding"])
    assert [f"{one.in_words}: {one.why or 'stop'}" for one in found] == case["networks"]
    assert services.refusal({"node1": found}).splitlines() == case.get("refusal", [])
    assert reported(services.findings_of("node1", found)) == [
        f"warn firewall.service.cut_off: the firewall (default deny) would block {one.in_words}"
        for one in found
        if not one.why
    ]


def reported(findings: list[Finding]) -> list[str]:
    return [f"{found.status} {found.id}: {found.summary}" for found in findings if found.status != "pass"]


def test_unreadable_rules_are_reported_as_unknown() -> None:
    raw = copy.deepcopy(LOOKS["finished"])
    raw["said"]["ip6tables"] = {"code": 4, "out": "", "err": "Permission denied (you must be root)"}
    look = firewall_look.read_look(raw)
    found = reported(judge.judge(request_of({}), look, judge.scene_now(look)))
    assert "unknown firewall.unknown: " in "\n".join(found)


def test_undo_restores_the_active_rules() -> None:
    """ufw's own chains are restored completely. Of built-in chains, only the policy is restored; other rules stay
    unchanged."""
    raw = LOOKS["finished"]["said"]["iptables"]["out"].partition("*nat")[0].splitlines()
    case = {"look": "finished", "edits": [{"of": "iptables", "remove": ["-A INPUT -j ufw-before-input"]}]}
    plan = firewall_plan.make_plan(request_of({}), look_of(case))
    wanted = [line for line in raw if line.startswith(("*", ":", "-A ufw-", "COMMIT"))]
    assert sorted(plan.texts["rules4"].splitlines()) == sorted(wanted)


@pytest.mark.parametrize("look", ["bare", "finished"])
@pytest.mark.parametrize("backend", ["ufw", "nftables"])
def test_number_of_steps_does_not_depend_on_the_number_of_peers(look: str, backend: str) -> None:
    raw = copy.deepcopy(LOOKS[look])
    if backend == "nftables":
        raw = {**raw, "ufw": None, "nftables_at_boot": True}
    seen = firewall_look.read_look(raw)
    few, many = (firewall_plan.make_plan(request_of({}, peers), seen) for peers in (3, 200))
    assert few.backend == backend
    assert few.steps
    assert [step_in_words(step) for step in many.steps] == [step_in_words(step) for step in few.steps]
    assert [undo_in_words(step) for step in many.undo] == [undo_in_words(step) for step in few.undo]
    text = "".join(step.get("text", "") for step in many.steps)
    assert sum(f" {'-s' if backend == 'ufw' else 'saddr'} 10.0." in line for line in text.splitlines()) == 200
