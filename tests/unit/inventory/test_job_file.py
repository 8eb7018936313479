"""A job file is judged by a real ansible-playbook, with what there is of options on that day; no node is contacted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from muster.inventory.job import is_job_file

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
our_own: 1
"""
SAID = """\
The inventory and the input given with -e have 6 problems; no node was contacted.
- job.yml line 4: launch_show_rank is 'none', not a whole number. Correct launch_show_rank.
- job.yml line 3: launch_detached is 'maybe', not true or false. Correct launch_detached.
- job.yml line 1: launch_scirpt is no option of Muster (did you mean launch_script?). Correct it, or take it out.
- job.yml line 6: launch_env sets RANK, which only Muster and the launcher may set. Correct launch_env.
- job.yml line 2: entry 1 of launch_args is --epochs and more behind a space, and the script gets one word. \
Make each word an entry of its own, as in launch_args: ["--epochs", "..."].
- the cluster: cluster_launch_nodes names nod2, which is not in gpu_nodes. Write node2, if that is meant.
"""


def judged(folder: Path, *given: str) -> subprocess.CompletedProcess[str]:
    """Return what a run says that is to launch something."""
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


def test_the_example_can_be_launched_as_it_stands(tmp_path: Path) -> None:
    done = judged(tmp_path, f"@{ROOT}/examples/job.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_everything_that_is_wrong_is_said_at_once_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "job.yml").write_text(BAD)
    done = judged(tmp_path, "@job.yml")
    assert done.returncode == 2
    said = "\n".join(line.strip() for line in done.stdout.splitlines())
    assert SAID in said, done.stdout
    assert "job.yml line 8: launch_env contains HF_TOKEN in clear text" in done.stderr
    assert "hf_0123456789" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("job.yml", "the command line: -e job.yml sets no variable. Write -e @job.yml for a file, or NAME=value."),
        ("launch_stop_timeut=3", "-e: launch_stop_timeut is no option of Muster (did you mean launch_stop_timeout?)."),
        ("launch_script_src=nowhere.py", "-e: nowhere.py is neither a file nor a folder with a __main__.py"),
        ("launch_env_file=nowhere.env", "-e: launch_env_file nowhere.env: the file cannot be read: No such file"),
    ],
)
def test_what_stands_on_the_command_line(tmp_path: Path, given: str, sentence: str) -> None:
    done = judged(tmp_path, given)
    assert done.returncode == 2
    assert sentence in done.stdout


def test_names_of_an_inventory_are_the_sites_own(tmp_path: Path) -> None:
    (tmp_path / "rack/group_vars").mkdir(parents=True)
    (tmp_path / "rack/group_vars/all.yml").write_text("cluster_rack: north\nlaunch_script: /srv/train.py\n")
    done = judged(tmp_path)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("book", ["plan.yml", "launch.yml"])
def test_nothing_of_a_job_file_runs(tmp_path: Path, book: str) -> None:
    """Not even by a variable that Ansible reads before the first task."""
    mark = tmp_path / "ran"
    pipe = f"{{{{ lookup('ansible.builtin.pipe', 'touch {mark}') }}}}"
    lines = ("launch_script: /x.py", f'validate_connects: "{pipe}"', f'ansible_connection: "{pipe}"')
    (tmp_path / "job.yml").write_text("\n".join(lines))
    # What a user types is a template: so the mark shows what it is to show.
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
def test_what_is_a_job_file(books: list[str], names: list[str], *, expected: bool) -> None:
    assert is_job_file(books, names) is expected
