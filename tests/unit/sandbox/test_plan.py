"""Every file in cases/ contains the state of a machine, and the expected result.

plan: containers, networks, routes, free space, image -> the changes, or the reason for rejection. end: the same input
-> the removal. pip: output of `pip config list` -> variables and folders. apt: apt's output -> settings. ulimits: hard
limits of the caller -> limits for podman. test_bases.py covers sources of releases and trusted signatures.
"""

from __future__ import annotations

import json
from typing import Any

from cases import cases
from muster.sandbox import plan as sandbox
from muster.sandbox.plan import SandboxFacts, SandboxRequest

WANTED: dict[str, Any] = {
    "name": "muster",
    "checkout": "/srv/muster",
    "subnet": "10.203.77.0/24",
    "image": "localhost/muster-node:new",
    "nodes": {"node1": "10.203.77.11", "node2": "10.203.77.12"},
    "admin_key": "ssh-ed25519 AAAA",
    "volumes": [],
    "environment": {},
}


def owner(given: dict[str, Any]) -> dict[str, str]:
    if given.get("foreign"):
        return {}
    return {sandbox.LABEL: "muster", sandbox.LABEL_CHECKOUT: given.get("checkout", "/srv/muster")}


def found_of(case: dict[str, Any]) -> SandboxFacts:
    """Return podman's output for a short description. By default, a container is running and matches the request."""
    usual = SandboxRequest(
        **{**WANTED, "nodes": {f"node{number}": f"10.203.77.{10 + number}" for number in range(1, 10)}}
    )
    containers = []
    for name, given in case.get("containers", {}).items():
        spec = {**sandbox.specification(usual, name.removeprefix("muster-")), **given.get("spec", {})}
        labels = {**owner(given), sandbox.LABEL_SPEC: given.get("label", json.dumps(spec))}
        containers.append({"Names": [name], "State": given.get("state", "running"), "Labels": labels})
    networks = [
        {
            "name": name,
            "network_interface": given["link"],
            "subnets": [{"subnet": given["subnet"]}],
            "labels": owner(given),
        }
        for name, given in case.get("networks", {}).items()
    ]
    return SandboxFacts(
        containers=containers,
        networks=networks,
        routes=case.get("routes", []),
        checkouts=set(case.get("checkouts", ["/srv/muster"])),
        image=case.get("image", True),
        free_mb=case.get("free_mb", 50_000),
    )


@cases(__file__, "plan")
def test_sandbox_plan_matches_the_case(case: dict[str, Any]) -> None:
    wanted = SandboxRequest(**{**WANTED, **case.get("wanted", {})})
    plan = sandbox.make_plan(wanted, found_of(case))
    if "refusal" in case:
        assert plan.refusal == case["refusal"]
        return
    assert plan.refusal == ""
    steps = {
        "build": plan.build,
        "network": plan.network,
        "remove_network": plan.remove_network,
        "removal": plan.removal,
        "start": plan.start,
        "create": list(plan.create),
    }
    assert {step: value for step, value in steps.items() if value} == case["steps"]
    assert plan.machines == bool(set(case["steps"]) - {"build"})


def test_podman_run_command_has_the_requested_settings() -> None:
    wanted = SandboxRequest(**{**WANTED, "volumes": ["/wheels:/wheels:ro"], "environment": {"no_proxy": "localhost"}})
    spec = sandbox.specification(wanted, "node1")
    words = sandbox.run_command("muster", "/srv/muster", "node1", spec, ["nofile=1024:1024"], ["/dev/fuse"])
    assert words == [
        *("podman", "--runtime=runc", "run", "--detach", "--systemd=always", "--name=muster-node1", "--hostname=node1"),
        *("--network=muster", "--ip=10.203.77.11", "--mac-address=02:42:0a:cb:4d:0b", "--no-hosts", "--restart=always"),
        *("--security-opt=apparmor=unconfined", "--http-proxy=false", "--cap-add=SYS_ADMIN", "--cap-add=NET_ADMIN"),
        *("--cap-add=NET_RAW", "--cap-add=SYS_PTRACE", "--cap-add=MKNOD", "--ulimit=nofile=1024:1024"),
        *("--device=/dev/fuse", "--volume=/wheels:/wheels:ro", "--env=no_proxy=localhost"),
        *("--env=MUSTER_ADMIN_KEY=ssh-ed25519 AAAA", "--label=muster.sandbox=muster"),
        *("--label=muster.checkout=/srv/muster", f"--label=muster.spec={json.dumps(spec)}"),
        "localhost/muster-node:new",
    ]


@cases(__file__, "end")
def test_removal_plan_matches_the_case(case: dict[str, Any]) -> None:
    plan = sandbox.plan_end("muster", "/srv/muster", found_of(case))
    assert plan.refusal == case.get("refusal", "")
    if not plan.refusal:
        assert plan.removal == case["removal"]
        assert plan.remove_network == case["remove_network"]


@cases(__file__, "pip")
def test_pip_settings_are_passed_to_nodes(case: dict[str, Any]) -> None:
    variables, folders = sandbox.node_pip_variables(sandbox.pip_settings(case["listing"]), "/etc/controller-ca.crt")
    assert variables == case["variables"]
    assert folders == case["folders"]


@cases(__file__, "apt")
def test_apt_settings_are_parsed(case: dict[str, Any]) -> None:
    assert sandbox.apt_settings(case["dump"]) == case["settings"]


@cases(__file__, "ulimits")
def test_ulimits_do_not_exceed_the_hard_limits(case: dict[str, Any]) -> None:
    assert sandbox.ulimits(case["hard"]) == case["limits"]


def test_last_line_names_the_sandbox_and_the_next_command() -> None:
    assert sandbox.outcome("muster", 3) == "the sandbox muster has 3 nodes; next: ansible-playbook site.yml"
    assert sandbox.outcome("muster", 0).startswith("the sandbox muster was removed from this machine")
