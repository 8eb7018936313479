"""Diagnosis rules of a site: a site-specific fault is reported for the node that has it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from drill import Drill, processes
from machines import NODES, find_machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine, Play, Result

pytestmark = pytest.mark.moment

MARK = "/run/muster-test-samples"  # this site's mark for mounted samples
ASKS = "site.samples_gone"
RULES = f"""\
texts:
  - id: site.sample
    pattern: 'sample (?P<name>\\d+) is broken'
    means: a sample could not be read
    example: "RuntimeError: sample 17 is broken"
questions:
  - id: {ASKS}
    asks: are the samples gone from {{node}}?
    command: [test, -e, {MARK}]
    code: 1
  - id: site.may_not
    asks: may a question gain rights on {{node}}?
    command: [sh, -c, "id -u; grep -c 'NoNewPrivs:.*1' /proc/self/status"]
    matches: "^0$"
causes:
  - id: site.samples
    group: resources
    scope: node
    says: the samples are gone from {{node}}
    fix: Mount them again
    symptoms: [site.sample]
    confirm: [{ASKS}]
    refute: [site.may_not]
    instead_of: [process.exception]
"""


@pytest.fixture(scope="module")
def nodes(with_pytorch: None) -> Iterator[list[Machine]]:
    """Yield the nodes. All nodes except one have the samples."""
    machines = [find_machine(name) for name in NODES]
    for machine in machines:
        machine.inside("touch", MARK)
    machines[1].inside("rm", MARK)
    yield machines
    for machine in machines:
        machine.inside("rm", "--force", MARK)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yml"
    file.write_text(RULES)
    return file


@pytest.fixture
def drill(tmp_path: Path, nodes: list[Machine], rules: Path) -> Iterator[Drill]:
    variables = {"cluster_launch_nodes": list(NODES), "cluster_nproc_per_node": 1, "diagnose_rules": [str(rules)]}
    drill = Drill(tmp_path, variables)
    yield drill
    drill.clean_up(nodes)


def raised(drill: Drill, nodes: list[Machine]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the diagnosis of a rank that could not read a sample, and its evidence."""
    drill.begin("--fault=raise", "--rank=1").in_step(3)
    assert nodes[1].inside("test", "-e", MARK, check=False).returncode == 1
    drill.fault(lambda: drill.open_gate(nodes[1]), lambda: not drill.is_running() or drill.has_verdict())
    drill.end()
    said = drill.result()["diagnosis"]
    print("\n".join(said["lines"]))
    assert processes(drill.launch_id) == {}
    return said, json.loads((drill.run / "evidence.json").read_text())


def causes(said: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["id"], one["node"]) for one in said["causes"]]


@pytest.fixture
def by_hand(play: Play, tmp_path: Path) -> Callable[..., Result]:
    def run(playbook: str, **variables: Any) -> Result:
        return play(playbook, extravars={"cluster_artifacts_dir": str(tmp_path / "kept"), **variables})

    return run


def test_site_rule_names_the_node_without_samples(
    drill: Drill, nodes: list[Machine], rules: Path, by_hand: Callable[..., Result]
) -> None:
    drill.variables["diagnose_rules_commands"] = True
    said, evidence = raised(drill, nodes)
    assert (said["word"], causes(said)) == ("confirmed", [("site.samples", "node2")])
    assert said["lines"][4] == "Next step: Mount them again"
    assert said["causes"][0]["proofs"][0]["source"] == "test on node2"
    # The command runs only on the node of the exception, without privileges.
    assert {node: ran for node, ran in evidence["ran"].items() if ASKS in ran}.keys() == {"node2"}
    assert not [one for one in evidence["findings"] if one["id"] == "site.may_not"]
    assert evidence["unanswered"] == {}
    # The evidence alone gives the same result. Without the rules, the diagnosis is generic.
    again = by_hand("playbooks/diagnose.yml", diagnose_rules=[str(rules)])
    assert "the samples are gone from node2 [confirmed" in again.stdout.replace("\n", "")
    without = by_hand("playbooks/diagnose.yml")
    assert "failed with an exception: RuntimeError: sample 17 is broken" in without.stdout.replace("\n", "")


def test_site_command_is_not_run_unless_allowed(drill: Drill, nodes: list[Machine]) -> None:
    said, evidence = raised(drill, nodes)
    assert (said["word"], causes(said)) == ("unknown", [])
    assert (said["candidates"][0]["id"], said["candidates"][0]["node"]) == ("site.samples", "node2")
    assert not any(ASKS in ran for ran in evidence["ran"].values())
    assert "site.samples" not in {one["id"] for one in said["ruled_out"]}


def test_invalid_rules_are_reported_before_contacting_nodes(rules: Path, by_hand: Callable[..., Result]) -> None:
    rules.write_text(RULES.replace("scope: node", "scope: nodes").replace("[test, -e,", "[sudo, test, -e,"))
    done = by_hand("playbooks/launch.yml", launch_script="/srv/train.py", diagnose_rules=[str(rules)])
    shown = " ".join(done.stdout.split())
    assert done.rc != 0
    assert "2 problems; no node was contacted" in shown
    assert f"{rules} line 9, questions 1 ({ASKS}): the command runs sudo" in shown
    assert f"{rules} line 18, causes 1 (site.samples): scope is nodes (did you mean node?)" in shown
