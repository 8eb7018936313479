"""muster-node-check as a file in a process of its own, as a node runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Template

from muster_node.tools import check_results
from muster_node.tools.pack import pack

REQUEST = {
    "node": "node1",
    "user": "nobody",
    "address": "127.0.0.1",
    "torchrun": "/nowhere/torchrun",
    "interface": "",
    "gpus": 0,
    "gpu_model": "",
    "nproc": 1,
    "backend": "gloo",
    "port": 29500,
    "head": False,
    "code": [],
    "run_root": "/var/lib/muster/launches",
    "collective": False,
    "allow": [],
    "shares": [],
}


@pytest.fixture(scope="module")
def program() -> str:
    return pack("muster_node.watch.node_check")


def run(program: str, folder: Path, *argv: str, **request: Any) -> subprocess.CompletedProcess[str]:
    """Run the program with its files in a folder."""
    places = {
        "/etc/muster/node-check.json": "request.json",
        "/var/lib/muster/node-check": "results",
        "/run/muster-node-check.lock": "lock",
    }
    for place, name in places.items():
        assert place in program
        program = program.replace(place, f"{folder}/{name}")
    given = {"health": {**REQUEST, **request}, "metrics": str(folder), "interval": 300}
    (folder / "request.json").write_text(json.dumps(given))
    path = folder / "muster-node-check"
    path.write_text(program)
    return subprocess.run([sys.executable, "-I", path, *argv], capture_output=True, text=True, check=False)


def test_results_metrics_and_history_are_kept(program: str, tmp_path: Path) -> None:
    done = run(program, tmp_path, "--json", "--keep")
    printed = json.loads(done.stdout)
    assert printed["form"] == "short"
    assert printed["ran"] > 10
    kept = check_results.last(f"{tmp_path}/results")
    assert kept == {**printed, "interval": 300}
    assert [one["when"] for one in check_results.history(f"{tmp_path}/results")] == [printed["when"]]
    assert "muster_node_status{" in (tmp_path / "muster_node.prom").read_text()


def test_a_gpu_that_is_missing_is_a_fault_of_the_node(program: str, tmp_path: Path) -> None:
    done = run(program, tmp_path, gpus=2)
    assert done.stdout.startswith("node: ")
    assert "cluster_gpus is 2" in done.stdout
    assert done.returncode == 1


def test_unknown_options_and_a_missing_request_end_with_2(program: str, tmp_path: Path) -> None:
    assert run(program, tmp_path, "--form", "quick").returncode == 2
    (tmp_path / "request.json").unlink()
    path = tmp_path / "muster-node-check"
    done = subprocess.run([sys.executable, "-I", path], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Run site.yml with --tags watch" in done.stderr


def test_the_history_is_bounded_and_survives_a_truncated_line(tmp_path: Path) -> None:
    folder = str(tmp_path)
    for number in range(5):
        check_results.keep({"when": number, "form": "full" if number == 2 else "short"}, {}, folder)
    path = tmp_path / check_results.HISTORY
    path.write_text(path.read_text() + '{"when": 5, "fo')
    assert [one["when"] for one in check_results.history(folder, 3)] == [3, 4]
    assert check_results.last_full(folder) == 2


def test_the_summary_counts_the_faults_of_a_day(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert check_results.summary(folder) == {}
    faulty = {"owner": "node", "reason": "node: a GPU was lost"}
    for hour in range(30):
        check_results.keep({"when": hour * 3600, "owner": "", **(faulty if hour in {3, 20, 22} else {})}, {}, folder)
    assert check_results.summary(folder) == {
        "when": 29 * 3600,
        "owner": "",
        "day": {"checks": 24, "faults": 2, "when": 22 * 3600, "reason": "node: a GPU was lost"},
    }


def test_metrics_are_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "textfiles").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="textfiles"):
        check_results.write_metrics(f"{tmp_path}/textfiles", "x 1\n")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_full_disk_ends_no_prolog(program: str, tmp_path: Path) -> None:
    (tmp_path / "results").write_text("no folder, so that nothing can be stored")
    done = run(program, tmp_path, "--keep", "--slurm", "prolog")
    assert (done.returncode, "the result cannot be stored" in done.stderr) == (0, True)
    assert done.stdout.startswith(("ok: ", "unknown: ", "user: ", "node: "))
    assert run(program, tmp_path, "--keep").returncode == 5


def test_hooks_of_slurm_end_with_0_without_the_check(tmp_path: Path) -> None:
    """watch_mode: absent removes the check, and the hooks stay until Slurm is configured again."""
    text = yaml.safe_load((Path(__file__).parents[3] / "roles/slurm/vars/main.yml").read_text())["_slurm_hook_text"]
    hook = tmp_path / "hook"
    hook.write_text(Template(text).render(_slurm_mark="x", _slurm_check=f"{tmp_path}/gone") + "prolog\n")
    assert subprocess.run(["sh", hook], check=False).returncode == 0


def test_a_check_that_fails_itself_ends_no_prolog(program: str, tmp_path: Path) -> None:
    for hook in ((), ("--slurm", "prolog")):
        done = run(program, tmp_path, *hook, user=7)
        assert (done.returncode, "the check failed" in done.stderr) == (0 if hook else 5, True), done
    (tmp_path / "request.json").unlink()
    argv = [sys.executable, "-I", str(tmp_path / "muster-node-check"), "--slurm", "prolog"]
    assert subprocess.run(argv, capture_output=True, check=False).returncode == 0
