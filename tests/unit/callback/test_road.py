"""What the callback road prints, played by ansible-playbook on this machine alone."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from paths import ROOT


def played(tmp_path: Path, playbook: str) -> list[str]:
    """What ansible-playbook prints of this, on this machine alone."""
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


def test_road_shows_what_ran_and_ends_with_the_reason(tmp_path: Path) -> None:
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


def test_road_ends_with_the_verdict(tmp_path: Path) -> None:
    lines = played(
        tmp_path,
        f"""
        - name: A verdict
          hosts: one
          gather_facts: false
          tasks:
            - name: Judge a smoke launch whose rank was silent
              ddp_smoke_verdict:
                launch:
                  artifacts: {tmp_path}
                  events: []
                  verdict: {{status: healthy, summary: x, findings: []}}
                  plan:
                    launch_id: x
                    backend: gloo
                    world_size: 1
                    nodes: [{{node: one, node_rank: 0, nproc: 1, ranks: [0]}}]
        """,
    )
    said = "one: rank 0 (local rank 0) did not report its start; one: rank 0 (local rank 0) did not report its result"
    wrong = f"the launch ran, but its result is wrong. {said}"
    at = lines.index("fatal: [one]: FAILED!")
    assert lines[at + 1 : at + 3] == [f"  {wrong}", ""]
    assert lines[-1] == f"FAILED: {wrong} ({tmp_path}/verdict.json)"


def test_road_says_nothing_at_the_end_when_all_was_rescued(tmp_path: Path) -> None:
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
