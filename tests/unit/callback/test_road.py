"""Output of the callback plugin `road`, with ansible-playbook running on this machine only."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from paths import ROOT


def played(tmp_path: Path, playbook: str) -> list[str]:
    """Return the output of ansible-playbook for a playbook that runs on this machine."""
    path = tmp_path / "play.yml"
    path.write_text(textwrap.dedent(playbook))
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "one,two,", "-c", "local", str(path)]
    done = subprocess.run(
        [*command, "-e", f"ansible_python_interpreter={sys.executable}"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.splitlines()


def test_output_hides_skipped_tasks_and_ends_with_the_failure_reason(tmp_path: Path) -> None:
    lines = played(
        tmp_path,
        """
        - name: Nobody needs this play
          hosts: all
          gather_facts: false
          tasks:
            - name: A task that is left out
              ansible.builtin.fail: {}
              when: false
        - name: This one runs
          hosts: all
          gather_facts: false
          tasks:
            - name: One that stops
              ansible.builtin.assert: {that: inventory_hostname != 'two', fail_msg: "the second\\nof two"}
        """,
    )
    assert [line for line in lines if line.startswith(("PLAY [", "TASK ["))] == [
        line + " " + "*" * (79 - len(line))
        for line in (
            "PLAY [This one runs]",
            "TASK [One that stops]",
        )
    ]
    assert lines[-1] == "STOPPED: two at 'One that stops': the second"


def verdict_of(tmp_path: Path, launch: str, events: str) -> list[str]:
    """Return the output of a smoke test with one rank whose verdict is failed."""
    return played(
        tmp_path,
        f"""
        - name: A verdict
          hosts: one
          gather_facts: false
          tasks:
            - name: Judge a smoke launch
              ddp_smoke_verdict:
                payload: {ROOT}/roles/ddp_smoke/files/acceptance
                stages: [world, train]
                launch:
                  artifacts: {tmp_path}
                  events: {events}
                  verdict: {launch}
                  plan:
                    launch_id: x
                    cluster: rack
                    user: muster
                    backend: gloo
                    master_addr: 10.0.0.1
                    master_port: 29500
                    world_size: 1
                    nodes: [{{node: one, node_rank: 0, nproc: 1, ranks: [0], address: 10.0.0.1}}]
        """,
    )


def test_output_ends_with_the_verdict(tmp_path: Path) -> None:
    lines = verdict_of(tmp_path, "{status: healthy, summary: x, findings: []}", "[]")
    wrong = "the launch finished, but the result is wrong. one: rank 0 (one, local rank 0) did not report anything"
    at = lines.index("fatal: [one]: FAILED!")
    assert lines[at + 1 : at + 3] == [f"  {wrong}", ""]
    assert lines[-1] == f"FAILED: {wrong} ({tmp_path}/verdict.json)"


def test_output_ends_with_launch_outcome_and_earlier_reports(tmp_path: Path) -> None:
    killed = (
        "{status: failed, summary: x, findings: [{id: launch.exception, status: fail, node: one, "
        "summary: rank 0 failed, evidence: [{source: stderr of rank 0, text: 'ValueError: x'}]}]}"
    )
    said = "{rank: 1, local_rank: 0, node_rank: 0, world_size: 1, backend: gloo, machine: m}"
    report = f"{{event: stage, stage: world, status: ok, from_rank: 0, from_node: one, facts: {said}}}"
    lines = verdict_of(tmp_path, killed, f"[{report}]")
    line = "one: rank 0 failed; findings before the failure: one: rank 0: rank is 1 instead of 0"
    at = lines.index("fatal: [one]: FAILED!")
    assert lines[at + 1 : at + 5] == [f"  {line}", "", "  stderr of rank 0:", "  ValueError: x"]
    assert lines[-1] == f"FAILED: {line} ({tmp_path}/verdict.json)"


def test_output_has_no_final_line_after_a_rescued_failure(tmp_path: Path) -> None:
    lines = played(
        tmp_path,
        """
        - name: A play
          hosts: one
          gather_facts: false
          tasks:
            - name: Everything is rescued
              block:
                - name: One that is rescued
                  ansible.builtin.fail: {msg: only for a moment}
              rescue:
                - name: The rescue
                  ansible.builtin.debug: {msg: rescued}
        """,
    )
    assert not [line for line in lines if line.startswith("STOPPED")]


def test_output_ends_with_the_files_that_a_removal_keeps(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results/model.pt").touch()
    lines = played(
        tmp_path,
        f"""
        - hosts: all
          gather_facts: false
          tasks:
            - name: Remove a folder
              wipe_node: {{node: "{{{{ inventory_hostname }}}}", folders: [{{path: {tmp_path}/results}}]}}
            - name: Work after the removal
              ansible.builtin.debug: {{}}
        """,
    )
    kept = "results is kept, because it contains files that Muster did not write: model.pt."
    at = lines.index("Kept, besides installed packages:")
    assert sorted(lines[at + 1 : at + 3]) == [f"{name}: {tmp_path}/{kept}" for name in ("one", "two")]
    assert at > next(number for number, line in enumerate(lines) if line.startswith("PLAY RECAP"))
