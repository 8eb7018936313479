"""The report at the end of a run, tested with simulated callback events and with ansible-playbook."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible import context
from ansible.module_utils.common.collections import ImmutableDict

from muster.verdict.finding import Finding, add_up
from muster.verdict.masking import MASK
from muster_controller.artifacts import runs
from muster_controller.artifacts.runs import write_json
from muster_controller.playbook.command_line import shown
from muster_controller.report.page import rewrite_page
from muster_controller.report.reporter import FIRST_CONTACT, Reporter, reason

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[4]
BOTH = "run ansible-playbook site.yml -i inventory/rack\nrun ansible-playbook site.yml."
VAULT = "ansible-vault encrypt_string --prompt"
KEEP = f"or store the password in the inventory as ansible_become_password, encrypted with: {VAULT}"
SUDO = f"--ask-become-pass to the command, {KEEP}"
WRONG = f"sudo rejected the password. Try again with --ask-become-pass, {KEEP}"
LOST = {"msg": "Task failed: no route to host", "unreachable": True}


@pytest.fixture(autouse=True)
def _no_run_goes_on() -> Iterator[None]:
    """Reset the environment of this process, in which a reporter begins a run."""
    before = os.environ.pop(runs.VARIABLE, None)
    yield
    os.environ.pop(runs.VARIABLE, None)
    if before is not None:
        os.environ[runs.VARIABLE] = before


@pytest.fixture(autouse=True)
def _environment_is_activated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the ansible-playbook of this run into the PATH."""
    program = tmp_path / "bin/ansible-playbook"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    monkeypatch.setattr(sys, "argv", [str(program)])


def begun(folder: Path, playbook: str = "site.yml", **options: Any) -> Reporter:
    """Return the reporter of a run on two nodes."""
    reporter = Reporter()
    reporter.begin(playbook, {"inventory": ["inventory/rack"], "tags": ["all"], **options})
    reporter.play("Baseline", {"cluster_user": "ada", "hf_token": "hf_abc", "words": ["a b"]})
    reporter.judged(
        {"cluster": {"name": "rack", "folder": str(folder / "rack"), "nodes": ["node1", "node2"], "keep": 0}}
    )
    return reporter


def run_of(page: Path | None) -> dict[str, Any]:
    assert page is not None
    assert "<h1>" in page.read_text()
    return runs.read_json(page.parent / "run.json")


def test_failed_run_writes_a_report(tmp_path: Path) -> None:
    given = ["cluster_user=ada", f"@{Path.cwd()}/more.yml", '{"words": ["a b"]}', "hf_token=hf_abc x=1", '{"half": ']
    reporter = begun(tmp_path, check=True, subset="node2", extra_vars=given)
    reporter.failed("node2", "Look", LOST, once=False, unreachable=True)
    reporter.failed("node1", "Mended by a rescue", {"msg": "x"}, once=False, unreachable=False)
    page = reporter.end({"node2"})
    assert page
    run = run_of(page)
    assert page == reporter.end({"node2"}) == tmp_path / "rack" / run["id"] / "report.html"
    assert (tmp_path / "rack/latest").resolve() == page.parent
    assert run["failures"] == [
        {"node": "node2", "task": "Look", "why": "no route to host", "unreachable": True, "before_verdict": False}
    ]
    assert run["options"] == {"cluster_user": "ada", "hf_token": MASK, "words": ["a b"]}
    command = "ansible-playbook site.yml -i inventory/rack --limit node2 --check -e cluster_user=ada -e @more.yml"
    assert run["command"] == f'{command} -e \'{{"words": ["a b"]}}\''
    assert (run["status"], run["nodes"], run["check"]) == ("stopped", ["node1", "node2"], True)
    assert "hf_abc" not in page.read_text()


def test_failures_are_listed_in_inventory_order(tmp_path: Path) -> None:
    reporter = begun(tmp_path)
    for node in ("node2", "node1"):
        reporter.failed(node, "Look", LOST, once=False, unreachable=True)
    assert [failure["node"] for failure in run_of(reporter.end({"node1", "node2"}))["failures"]] == ["node1", "node2"]


def test_playbooks_of_one_command_share_a_run(tmp_path: Path) -> None:
    reporter = begun(tmp_path, "playbooks/baseline.yml")
    assert reporter.end(set()) is None
    reporter.begin("playbooks/health.yml", {})
    reporter.play("Health", {})
    folder = runs.run_folder(tmp_path / "rack")
    runs.add_verdict(folder, add_up([Finding("net.links", "pass", "node1", "fine")]))
    run = run_of(reporter.end(set()))
    assert run["playbook"] == "baseline.yml, health.yml"
    assert run["command"] == "ansible-playbook playbooks/baseline.yml playbooks/health.yml -i inventory/rack"
    assert run["id"] == folder.name


def test_run_without_checks_writes_no_report(tmp_path: Path) -> None:
    assert begun(tmp_path).end(set()) is None
    assert not (tmp_path / "rack").exists()


@pytest.mark.parametrize("playbook", ["playbooks/trust.yml", "playbooks/plan.yml", "playbooks/validate.yml"])
def test_some_playbooks_never_write_a_report(tmp_path: Path, playbook: str) -> None:
    reporter = begun(tmp_path, playbook)
    reporter.failed("node1", "Look", LOST, once=False, unreachable=True)
    assert reporter.end({"node1"}) is None
    assert not (tmp_path / "rack").exists()


def test_run_without_a_cluster_writes_no_report(tmp_path: Path) -> None:
    reporter = Reporter()
    reporter.begin("site.yml", {})
    reporter.failed("localhost", "Validate the inventory", {"msg": "no name"}, once=True, unreachable=False)
    assert reporter.end({"localhost"}) is None


def test_successful_run_writes_a_report(tmp_path: Path) -> None:
    reporter = begun(tmp_path)
    folder = runs.run_folder(tmp_path / "rack")
    runs.add_verdict(folder, add_up([Finding("net.links", "pass", "node1", "fine")], "all is well"))
    run = run_of(reporter.end(set()))
    assert (run["id"], run["status"], run["sentence"]) == (folder.name, "healthy", "all is well")


def test_failures_before_and_after_the_verdict_are_distinguished(tmp_path: Path) -> None:
    reporter = begun(tmp_path)
    folder = runs.run_folder(tmp_path / "rack")
    verdict = runs.add_verdict(folder, add_up([Finding("net.links", "pass", "node1", "fine")], "all is well"))
    reporter.failed("node2", "Look", LOST, once=False, unreachable=True)
    reporter.took({"verdict": verdict, "artifacts": str(folder)})
    assert run_of(reporter.end({"node2"}))["status"] == "degraded"


def test_failure_with_a_verdict_is_not_counted_twice(tmp_path: Path) -> None:
    reporter = begun(tmp_path)
    folder = runs.run_folder(tmp_path / "rack")
    verdict = runs.add_verdict(folder, add_up([Finding("launch.exit", "fail", "node2", "rank 1 failed")]))
    result = {"verdict": verdict, "artifacts": str(folder), "msg": "node2: rank 1 failed"}
    reporter.took(result)
    reporter.failed("node1", "Train", result, once=True, unreachable=False)
    run = run_of(reporter.end({"node1"}))
    assert (run["status"], run["sentence"], run["failures"]) == ("failed", "node2: rank 1 failed", [])


def test_every_launch_of_a_run_gets_its_own_report(tmp_path: Path) -> None:
    reporter = begun(tmp_path)
    folders = [tmp_path / "rack" / f"20260101-12000{number}-abcd" for number in range(3)]
    for folder in (*folders, folders[0]):
        folder.mkdir(parents=True, exist_ok=True)
        verdict = runs.add_verdict(folder, add_up([Finding("launch.ended", "pass", "node1", "ended")], "all is well"))
        reporter.took({"verdict": verdict, "artifacts": str(folder)})
    reporter.took({"artifacts": str(tmp_path / "elsewhere")})
    page = reporter.end(set())
    assert page == folders[0] / "report.html"
    assert [run_of(folder / "report.html")["id"] for folder in folders] == [folder.name for folder in folders]


def test_attaching_extends_the_report_of_the_launch(tmp_path: Path) -> None:
    first = begun(tmp_path)
    folder = runs.run_folder(tmp_path / "rack")
    detached = add_up([Finding("launch.detached", "unknown", "node1", "runs detached")])
    first.took({"verdict": runs.add_verdict(folder, detached), "artifacts": str(folder)})
    begin = run_of(first.end(set()))
    second = begun(tmp_path, "playbooks/launch.yml")
    ended = add_up([Finding("launch.ended", "pass", "node1", "ended")], "succeeded")
    runs.add_verdict(folder, ended, instead_of=("launch.", "smoke."))
    second.took({"verdict": ended, "artifacts": str(folder)})
    run = run_of(second.end(set()))
    assert (run["id"], run["playbook"], run["began"]) == (folder.name, "site.yml", begin["began"])
    assert run["status"] == "healthy"
    assert [path.name for path in runs.history(tmp_path / "rack")] == [folder.name]


def test_report_of_an_interrupted_run_can_be_rewritten(tmp_path: Path) -> None:
    folder = tmp_path / "rack/20260101-120000-abcd"
    write_json(folder / "verdict.json", add_up([Finding("launch.ended", "pass", "node1", "ended")], "it is well"))
    before = tmp_path / "rack/20251231-120000-abcd"
    write_json(before / "verdict.json", add_up([Finding("launch.exit", "fail", "node1", "rank 0 failed")]))
    page = rewrite_page(folder).read_text()
    assert "Healthy: rack, 20260101-120000-abcd" in page
    assert "rank 0 failed" in page
    assert runs.read_json(folder / "run.json")["cluster"] == "rack"


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ({"msg": "no"}, "no"),
        ({}, "failed"),
        ({"msg": "non-zero return code", "stderr": "E: no\n"}, "non-zero return code\nE: no"),
        ({"msg": "x", "results": [{"failed": True, "msg": "a"}, {"msg": "b"}, {"failed": True, "msg": "c"}]}, "a\nc"),
        ({"msg": "ssh: Host key verification failed."}, f"{FIRST_CONTACT} -i inventory/rack"),
        # Errors of ansible-core 2.19.14: sudo without a password, sudo with a wrong password, vault without a password.
        ({"msg": "Task failed: Missing sudo password"}, f"sudo requires a password. Add {SUDO}"),
        ({"msg": "x", "stderr": "sudo: a password is required\n"}, f"sudo requires a password. Add {SUDO}"),
        ({"msg": "Task failed: Incorrect sudo password"}, WRONG),
        (
            {"msg": "Task failed: Attempting to decrypt but no vault secrets found."},
            "an inventory value is encrypted. Add --ask-vault-pass to the command",
        ),
        ({"msg": "run ansible-playbook site.yml", "stderr": "run ansible-playbook site.yml.\n"}, BOTH),
        ({"censored": "hidden"}, "failed"),
    ],
)
def test_failure_reason_is_read_from_result(result: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict(inventory=("inventory/rack",)))
    assert reason(result) == why


def test_secrets_are_masked() -> None:
    options = {
        "launch_env": {"HF_TOKEN": "a", "EPOCHS": 3},
        "launch_args": ["--pat", "abc", "--lr=1"],
        "ansible_become_password": "c",
        "mirror": "https://ada:secret@mirror.example/x",
        "words": ["one", "two"],
    }
    kept = {name: shown(name, value) for name, value in options.items()}
    assert kept["launch_env"] == {"HF_TOKEN": MASK, "EPOCHS": MASK}
    assert kept["launch_args"] == shown("launch_args", "--pat abc,--lr=1") == ["--pat", MASK, "--lr=1"]
    assert shown("launch_env", "HF_TOKEN=a") == MASK
    assert kept["ansible_become_password"] == MASK
    assert "secret" not in json.dumps(kept)
    assert kept["words"] == ["one", "two"]


# ---------------------------------------------------------------- with ansible-playbook


def begin(tmp_path: Path, inventory: str, *arguments: str) -> subprocess.Popen[str]:
    (tmp_path / "rack").mkdir()
    (tmp_path / "rack/hosts.yml").write_text(textwrap.dedent(inventory))
    command = [str(Path(sys.executable).with_name("ansible-playbook")), *arguments]
    command += ["-i", str(tmp_path / "rack"), "-e", f"cluster_artifacts_dir={tmp_path}/kept"]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def played(tmp_path: Path, inventory: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    with begin(tmp_path, inventory, *arguments) as running:
        out, err = running.communicate(timeout=60)
    return subprocess.CompletedProcess(running.args, running.returncode, out, err)


def test_last_line_names_the_report_of_an_invalid_inventory(tmp_path: Path) -> None:
    done = played(
        tmp_path, "gpu_nodes: {vars: {cluster_user: root}, hosts: {node1: {ansible_host: 10.1.2.3}}}", "site.yml"
    )
    page = (tmp_path / "kept/rack/latest").resolve() / "report.html"
    assert done.returncode != 0
    assert done.stdout.splitlines()[-1].endswith(f"({page})")
    assert "cluster_user is root" in page.read_text()


STAND_IN = """
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule({})
module.warn("soon: ansible-playbook site.yml --tags baseline")
module.warn("and ansible-playbook playbooks/retire.yml -e node=node1")
ours = {"status": "healthy", "text": "HEALTHY: so", "summary": "so"}
last = "ansible-playbook playbooks/upgrade.yml -e kernel=x"
module.fail_json(msg="first run ansible-playbook SOMETHING", closing=ours, verdict=ours, stderr=last)
"""


def with_a_stand_in(tmp_path: Path, task: str, command: str, *options: str) -> tuple[str, str, str]:
    """Run a play on this machine with a module that prints commands; return stdout, stderr and the beginning of the
    completed command."""
    (tmp_path / "library").mkdir()
    (tmp_path / "library/stand_in.py").write_text(STAND_IN.replace("SOMETHING", command))
    (tmp_path / "play.yml").write_text(f"- hosts: node1\n  tasks: [{task}]")
    inventory = "gpu_nodes: {hosts: {node1: {ansible_connection: local, ansible_python_interpreter: %s}}}"
    modules = ("-M", str(tmp_path / "library"), *options)
    done = played(tmp_path, inventory % sys.executable, str(tmp_path / "play.yml"), *modules)
    program = Path(sys.executable).with_name("ansible-playbook")
    here = program.relative_to(ROOT) if program.is_relative_to(ROOT) else program
    return done.stdout, done.stderr, f"{here} site.yml -i {tmp_path}/rack --tags"


TASKS = pytest.mark.parametrize("task", ["{stand_in: {}}", "{stand_in: {}, loop: [1]}"], ids=["once", "in a loop"])


@TASKS
def test_commands_suggested_by_modules_are_completed(tmp_path: Path, task: str) -> None:
    """Only commands listed in muster.verdict.foreign are completed in the output of a node."""
    out, err, site = with_a_stand_in(tmp_path, task, "site.yml --tags baseline")
    assert f"[WARNING]: soon: {site} baseline" in err
    assert f"first run {site} baseline" in " ".join(out.split())
    assert "first run ansible-playbook" not in out
    assert out.splitlines()[-1].startswith("STOPPED: ")


@TASKS
@pytest.mark.parametrize("options", [(), ("-v",)], ids=["plain", "verbose"])
def test_command_from_a_node_is_quoted_and_not_completed(tmp_path: Path, task: str, options: tuple[str, ...]) -> None:
    command = "playbooks/retire.yml -e node=node1 -e wipe=true"
    out, err, _ = with_a_stand_in(tmp_path, task, command, *options)
    words = " ".join((out + err).split())
    assert "and ansible-playbook playbooks/retire.yml -e node=node1" in words
    assert f"first run ansible-playbook {command}" in words
    assert not re.search(r"(retire|upgrade)\.yml -i", words)
    last = out.splitlines()[-1]
    assert last.startswith(f"STOPPED: node1 at 'stand_in': \"first run ansible-playbook {command}\"")
    assert "HEALTHY" not in last


def test_failure_to_write_the_report_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a file where a folder should be")
    done = played(tmp_path, "gpu_nodes: {hosts: {node1: {ansible_host: 10.1.2.300}}}", "site.yml")
    assert "The report of this run was not written" in done.stderr
    assert done.stdout.splitlines()[-1].startswith("STOPPED at ")
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize("check", [False, True])
def test_older_runs_are_removed_and_reported(tmp_path: Path, *, check: bool) -> None:
    kept = tmp_path / "kept/rack"
    for name in ("20260101-120000-abcd", "20260102-120000-abcd"):
        write_json(kept / name / "run.json", {"id": name, "ended": "2026-01-02T12:00:00+00:00"})
    arguments = ("site.yml", "-e", "cluster_artifacts_keep=2", *(["--check"] if check else []))
    done = played(tmp_path, "gpu_nodes: {hosts: {node1: {ansible_host: 10.1.2.300}}}", *arguments)
    lines = done.stdout.splitlines()
    said = "Artifacts of rack: 1 run removed; kept: the newest 2 (cluster_artifacts_keep)"
    assert lines[-1].startswith("STOPPED at ")
    assert lines.count(said) == (not check)
    assert check or said in lines[-4:]
    older = ["20260102-120000-abcd", "20260101-120000-abcd"]
    assert [folder.name for folder in runs.history(kept)][1:] == older[: 2 if check else 1]


def test_plan_playbook_writes_no_files(tmp_path: Path) -> None:
    played(tmp_path, "gpu_nodes: {hosts: {node1: {ansible_host: 10.1.2.300}}}", "playbooks/plan.yml")
    assert not (tmp_path / "kept").exists()


def test_report_can_be_rewritten_by_run_id(tmp_path: Path) -> None:
    kept = tmp_path / "kept/rack"
    for name in ("20260101-120000-abcd", "20260102-120000-abcd"):
        write_json(kept / name / "verdict.json", add_up([Finding("launch.ended", "pass", "node1", "ended")], name))
    arguments = ("playbooks/report.yml", "-e", "report_run=20260101-120000-abcd")
    done = played(tmp_path, "gpu_nodes: {hosts: {node1: {ansible_host: 192.0.2.1}}}", *arguments)
    assert done.returncode == 0, done.stdout
    assert [path.parent.name for path in kept.glob("*/report.html")] == ["20260101-120000-abcd"]


def test_interrupted_run_writes_a_report(tmp_path: Path) -> None:
    (tmp_path / "play.yml").write_text(
        textwrap.dedent(
            """
            - name: A play that somebody ends
              hosts: localhost
              gather_facts: false
              tasks:
                - name: Validate the inventory
                  validate_inventory: {connects: false}
                - name: Look at something
                  ansible.builtin.file:
                    path: "{{ cluster_artifacts_dir }}/rack/{{ lookup('ansible.builtin.env', 'MUSTER_RUN') }}"
                    state: directory
                - name: Wait
                  ansible.builtin.wait_for: {timeout: 60}
            """
        )
    )
    with begin(
        tmp_path, "gpu_nodes: {hosts: {node1: {ansible_host: 192.0.2.1}}}", str(tmp_path / "play.yml")
    ) as running:
        deadline = time.monotonic() + 30
        while not list(tmp_path.glob("kept/rack/*")):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        running.wait(30)
    folder = next(runs.history(tmp_path / "kept/rack"))
    assert run_of(folder / "report.html")["failures"] == [
        {"node": "cluster", "task": "A play that somebody ends", "why": "ansible-playbook was interrupted"}
    ]


def test_planned_changes_of_a_check_are_in_run_json_and_on_the_page(tmp_path: Path) -> None:
    would = {"changed": True, "changes": {"package": ["chrony"]}}
    for playbook, check in (("site.yml", True), ("site.yml", False), ("playbooks/retire.yml", True)):
        reporter = begun(tmp_path / str(check), playbook, check=check)
        reporter.planned_by("node2", "node_baseline", "Inspect the node", would)
        reporter.planned_by("node1", "node_baseline", "Inspect the node", would)
        reporter.failed("node2", "Look", LOST, once=False, unreachable=True)
        page = reporter.end({"node2"})
        assert page is not None
        found = run_of(page).get("planned")
        assert ("Planned changes" in page.read_text()) == (found is not None) == (playbook == "site.yml" and check)
        if found:
            assert [(one["node"], one["name"]) for one in found["rows"]] == [("node1", "chrony"), ("node2", "chrony")]
            assert found["rows"][0]["purpose"].startswith("Packages, time synchronization")
            assert found["stopped"] == {"node2": "Look"}
