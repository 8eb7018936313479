"""A real ansible-playbook validates job files against the current options; no node is contacted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from muster.inventory.job import is_job_file, is_of_a_job

ROOT = Path(__file__).parents[3]
NODES = "gpu_nodes:\n  hosts:\n    node1: {ansible_host: 10.0.0.1}\n    node2: {ansible_host: 10.0.0.2}\n"
BAD = """\
launch_scirpt: /srv/train.py
launch_args: ["--epochs 3"]
launch_detached: maybe
launch_show_rank: none
cluster_launch_nodes: [node1, nod2]
launch_env:
  RANK: 3
  HF_TOKEN: hf_0123456789
"""
REPORTED = """\
The inventory and the input given with -e have 6 problems; no node was contacted.
- job.yml line 4: launch_show_rank is 'none', not a whole number. Correct launch_show_rank.
- job.yml line 3: launch_detached is 'maybe', not true or false. Correct launch_detached.
- job.yml line 1: launch_scirpt is not a Muster option (did you mean launch_script?). Correct or remove it.
- job.yml line 6: launch_env sets RANK, which is reserved for Muster and the launcher. Correct launch_env.
- job.yml line 2: entry 1 of launch_args has a space after --epochs, but is passed as one argument. \
Make each word a separate entry: launch_args: ["--epochs", "..."].
- job.yml line 5: the cluster: cluster_launch_nodes contains nod2, which is not in gpu_nodes. \
Correct it to node2 if that was meant.
"""


def validate(folder: Path, *given: str) -> subprocess.CompletedProcess[str]:
    words = [word for one in (*given, "validate_launches=true") for word in ("-e", one)]
    return run(folder, "validate.yml", *words)


def run(folder: Path, book: str, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "rack").mkdir(exist_ok=True)
    (folder / "rack/hosts.yml").write_text(NODES)
    return subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", ROOT / "playbooks" / book, "-i", "rack", *words],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "COLUMNS": "400"},
    )


def test_the_example_job_file_is_valid(tmp_path: Path) -> None:
    done = validate(tmp_path, f"@{ROOT}/examples/job.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    names = re.findall(r"(?m)^(?:# )?([a-z_]+): ", (ROOT / "examples/job.yml").read_text())
    assert [name for name in names if not is_of_a_job(name)] == []
    assert len(names) > 40


def test_all_problems_are_reported_at_once_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "job.yml").write_text(BAD)
    done = validate(tmp_path, "@job.yml")
    assert done.returncode == 2
    shown = "\n".join(line.strip() for line in done.stdout.splitlines())
    assert REPORTED in shown, done.stdout
    assert "job.yml line 8: launch_env contains HF_TOKEN in clear text" in done.stderr
    assert "hf_0123456789" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            "job.yml",
            "the command line: -e job.yml sets no variable. Use -e @job.yml if it is a file, or -e NAME=VALUE to",
        ),
        ("launch_stop_timeut=3", "-e: launch_stop_timeut is not a Muster option (did you mean launch_stop_timeout?)."),
        (
            "muster_mode=verify",
            "-e: muster_mode is not a Muster option (did you mean cluster_mode?). Correct or remove it.",
        ),
        ("launch_script_src=nowhere.py", "-e: nowhere.py is neither a file nor a folder with a __main__.py"),
        ("launch_env_file=nowhere.env", "-e: launch_env_file nowhere.env: the file cannot be read: No such file"),
    ],
)
def test_problems_on_the_command_line_are_reported(tmp_path: Path, given: str, sentence: str) -> None:
    done = validate(tmp_path, given)
    assert done.returncode == 2
    assert sentence in done.stdout


def test_short_names_of_options_can_be_given(tmp_path: Path) -> None:
    done = validate(tmp_path, "full=true", "nodes_file=/x", "_ssh_mesh_sshd_settings=x", "launch_script=/srv/train.py")
    assert done.returncode == 0, done.stdout


def test_variables_that_the_inventory_uses_can_be_given(tmp_path: Path) -> None:
    (tmp_path / "rack/group_vars").mkdir(parents=True)
    (tmp_path / "rack/group_vars/all.yml").write_text('cluster_name: "{{ hall }}-1"\n')
    done = validate(tmp_path, "hall=north", "launch_script=/srv/train.py")
    assert done.returncode == 0, done.stdout


def test_unknown_variables_in_an_inventory_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "rack/group_vars").mkdir(parents=True)
    (tmp_path / "rack/group_vars/all.yml").write_text("cluster_rack: north\nlaunch_script: /srv/train.py\n")
    done = validate(tmp_path)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("book", ["plan.yml", pytest.param("launch.yml", marks=pytest.mark.extended)])
def test_templates_in_a_job_file_are_not_evaluated(tmp_path: Path, book: str) -> None:
    mark = tmp_path / "ran"
    pipe = f"{{{{ lookup('ansible.builtin.pipe', 'touch {mark}') }}}}"
    lines = ("launch_script: /x.py", f'validate_connects: "{pipe}"', f'ansible_connection: "{pipe}"')
    (tmp_path / "job.yml").write_text("\n".join(lines))
    # Templates on the command line are evaluated, which shows that the mark works.
    given = ("launch_script=/x.py", "ansible_host=192.0.2.1", f"validate_connects={pipe}")
    own = run(tmp_path, book, *(word for one in given for word in ("-e", one)))
    assert mark.exists(), own.stdout + own.stderr
    mark.unlink()
    done = run(tmp_path, book, "-e", "@job.yml")
    assert done.returncode == 2
    assert not mark.exists()
    assert "The job file was not used, and no node was contacted.\n- job.yml line 2: " in done.stderr


@pytest.mark.parametrize(
    ("books", "names", "expected"),
    [
        (["launch.yml"], ["epochs"], True),
        (["jobs.yml"], ["jobs_stop"], True),
        (["site.yml"], ["launch_users", "launch_users_tasks"], False),
        (["site.yml"], ["launch_users", "launch_args"], True),
    ],
)
def test_job_files_are_recognized(books: list[str], names: list[str], *, expected: bool) -> None:
    assert is_job_file(books, names) is expected
