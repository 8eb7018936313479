"""Completion of commands that the code writes in plain form."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from ansible import context
from ansible.module_utils.common.collections import ImmutableDict

from cases import cases
from muster.verdict.check import Check
from muster.verdict.commands import COMMAND, Door, Terminal, again, on_node, ping, playbook, tool
from muster.verdict.finding import add_up, evidence
from muster_controller.playbook import terminal

WRITTEN = (
    playbook("site.yml", tags="pytorch"),
    playbook("playbooks/health.yml"),
    playbook("playbooks/trust.yml", trust_replace="node1,node2"),
    playbook("site.yml", tags="baseline", cluster_user="a b"),
    on_node("node1", "ip route get 10.0.0.2"),
    on_node("node[1:2]", "ss -ltnp", become=True),
    ping("node1"),
    tool("torch_rows.py"),
)
TERMINALS = (
    Terminal(),
    Terminal(".venv/bin/", ("inventory/lab",)),
    Terminal("/opt/my tools/bin/", ("my lab", "more,", "inventory/lab"), "/opt/my tools/"),
    Terminal(".venv/bin/", ("inventory/lab",), asks_for_sudo=True),
)


def terminal_of(case: dict[str, Any]) -> Terminal:
    inventories = tuple(case.get("inventories", ["inventory/lab"]))
    is_somebodys, asks = case.get("somebodys", False), case.get("asks_for_sudo", False)
    return Terminal(case.get("prefix", ".venv/bin/"), inventories, is_somebodys=is_somebodys, asks_for_sudo=asks)


@cases(__file__, "text")
def test_commands_in_text_are_completed(case: dict[str, Any]) -> None:
    assert terminal_of(case).text(case["text"], case.get("quoted", ())) == case["typed"]


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("here", TERMINALS, ids=["activated", "lab", "spaces", "sudo"])
def test_completed_command_is_not_completed_again(written: str, here: Terminal) -> None:
    assert COMMAND.match(written)
    once = here.text(written)
    assert here.text(once) == once
    for place in ("Run {}.", "({})", "first: {}, then again", '"{}"', "{}\nand more"):
        assert here.text(place.format(written)) == place.format(once)


def test_commands_for_one_launch_are_verbs_of_muster() -> None:
    door = Door("muster", "lab", {"playbooks/launch.yml": "run", "playbooks/jobs.yml": "jobs"})
    for option, verb in (("launch_stop", "stop"), ("launch_attach", "attach"), ("jobs_logs", "logs")):
        book = f"playbooks/{'jobs' if option == 'jobs_logs' else 'launch'}.yml"
        written = f"Run {playbook(book, **{option: 'x-1'})}."
        assert Terminal(door=door).text(written) == f"Run muster {verb} -c lab x-1."
        foreign = frozenset({written[4:-1]})
        assert Terminal(door=door, foreign=foreign).text(written) == written
    assert Terminal(door=door).text(playbook("playbooks/launch.yml", launch_wait="true")) == (
        "muster run -c lab -e launch_wait=true"
    )


def test_users_run_their_own_playbooks() -> None:
    for name in ("environment", "diagnose"):
        book = playbook(f"playbooks/{name}.yml")
        assert Terminal(is_somebodys=True).text(book) == book


def test_commands_are_valid_shell_commands() -> None:
    assert WRITTEN[0] == "ansible-playbook site.yml --tags pytorch"
    assert WRITTEN[3] == 'ansible-playbook site.yml --tags baseline -e \'{"cluster_user": "a b"}\''
    assert WRITTEN[4] == "ansible node1 -m ansible.builtin.command -a 'ip route get 10.0.0.2'"
    assert WRITTEN[5] == "ansible 'node[1:2]' --become -m ansible.builtin.command -a 'ss -ltnp'"


def test_commands_in_findings_are_completed_but_not_in_node_text() -> None:
    said = "run ansible-playbook site.yml --tags pytorch"
    check = Check(
        "torch.import", "", "", seen="never", fix="Build it with", command=playbook("site.yml", tags="pytorch")
    )
    finding = check.fail("node1", f"torch says: {said}", observed=said, expected=said, evidence=evidence("log", said))
    kept = {"node": "node1", "facts": {"motd": said, "lines": [said]}, "verdict": add_up([finding])}
    typed = Terminal(".venv/bin/", ("inventory/lab",)).shapes(kept)
    (shape,) = typed["verdict"]["findings"]
    command = ".venv/bin/ansible-playbook site.yml -i inventory/lab --tags pytorch"
    assert shape["fix"] == {"text": "Build it with", "command": command}
    assert typed["verdict"]["summary"] == f"node1: torch says: {said}. Build it with: {command}"
    assert shape["summary"] == finding.summary
    assert (shape["observed"], shape["expected"], shape["evidence"]) == (said, said, evidence("log", said))
    assert typed["facts"] == kept["facts"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a checkout whose environment is not in the PATH, and a run that uses three inventories."""
    program = tmp_path / "my lab/.venv/bin/ansible-playbook"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    folder = tmp_path / "my lab"
    monkeypatch.chdir(folder)
    monkeypatch.setattr(terminal, "project_root", lambda: folder)
    monkeypatch.setattr(sys, "argv", [".venv/bin/ansible-playbook"])
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    # As Ansible stores them: absolute paths, except for a list of hosts.
    inventories = (str(folder / "inventory/rack"), "/etc/other racks", "a,b")
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict(inventory=inventories))
    return folder


SITE = "ansible-playbook site.yml -i inventory/rack -i '/etc/other racks' -i a,b"


def test_command_includes_the_path_of_an_inactive_environment(project: Path) -> None:
    assert project == Path.cwd()
    assert terminal.typed("Run ansible-playbook site.yml.") == f"Run .venv/bin/{SITE}."


def test_command_omits_the_path_of_an_active_environment(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{project}/.venv/bin:/usr/bin")
    assert terminal.typed("ansible-playbook site.yml") == SITE


def test_another_ansible_in_the_path_is_not_used(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = project.parent / "bin/ansible-playbook"
    other.parent.mkdir()
    other.touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{other.parent}:/usr/bin")
    assert terminal.typed("ansible-playbook site.yml") == f".venv/bin/{SITE}"


def test_commands_shown_outside_the_project_use_full_paths(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [f"{project}/.venv/bin/ansible-playbook"])
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict(inventory=(str(project / "inventory"),)))
    (project.parent / "here").mkdir()
    monkeypatch.chdir(project.parent / "here")
    there = f"-i '{project}/inventory'"
    assert terminal.typed(WRITTEN[1]) == (
        f"'{project}/.venv/bin/ansible-playbook' '{project}/playbooks/health.yml' {there}"
    )
    assert terminal.typed(WRITTEN[7]) == f"'{project}/.venv/bin/python' '{project}/script/torch_rows.py'"


def test_command_of_the_run_is_repeated_without_secrets(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ImmutableDict(
        args=(f"{project}/playbooks/launch.yml",),
        inventory=(f"{project}/inventory/rack",),
        tags=("all",),
        subset="node1,node2",
        extra_vars=("launch_script=train.py", "hf_token=hf_abc"),
    )
    monkeypatch.setattr(context, "CLIARGS", given)
    run = ".venv/bin/ansible-playbook playbooks/launch.yml -i inventory/rack --limit node1,node2"
    text = f"take another port: {again(cluster_master_port=29501)}."
    assert terminal.typed(text) == f"take another port: {run} -e launch_script=train.py -e cluster_master_port=29501."


def test_ad_hoc_command_is_not_repeated(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict(args="gpu_nodes", inventory=(f"{project}/inventory/rack",)))
    assert terminal.typed(again(cluster_master_port=1)) == again(cluster_master_port=1)
    assert terminal.typed(ping("node1")).startswith(".venv/bin/ansible node1 -i inventory/rack -m ")


def test_output_and_evidence_in_a_message_are_unchanged(project: Path) -> None:
    said = "hint: ansible-playbook site.yml"
    for result in (
        {"stderr": said},
        {"findings": [{"id": "x", "evidence": [{"source": "log", "text": said}]}]},
        {"verdict": {"findings": [{"id": "x", "evidence": [{"source": "log", "text": said}]}]}},
    ):
        message = f"Run ansible-playbook site.yml. The log:\n{said}"
        assert terminal.typed(message, result) == f"Run .venv/bin/{SITE}. The log:\n{said}"
