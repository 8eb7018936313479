"""The exported batch script is run by bash with stubs of Slurm's commands: each node runs the right command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from ansible import context

from launch_shapes import a_node, a_request
from muster.export.job import exported
from muster.export.sbatch import sbatch
from muster.launch.plan import PlanError
from muster_controller.launch.exporting import export

if TYPE_CHECKING:
    from pathlib import Path

FOLDERS = {"script_src": "", "project": ""}
HARD = ["it's", "$HOME `id`", "a b", "--x=$(date)", "é\\", "1\nMUSTER_TASK\ntouch /nowhere"]
# Stubs: scontrol knows two nodes, and srun runs the task of each node, one after the other.
SCONTROL = """#!/bin/sh
case "$*" in
"show hostnames alpha,beta") printf 'alpha\\nbeta\\n' ;;
"-o show node alpha") echo "NodeName=alpha Arch=x86_64 NodeAddr=127.0.0.1 NodeHostName=alpha Version=22.05" ;;
"-o show node beta") echo "NodeName=beta Arch=x86_64 NodeAddr=10.9.9.2 NodeHostName=beta Version=22.05" ;;
*) exit 1 ;;
esac
"""
SRUN = """#!/bin/bash
test "$1 $2" = "--kill-on-bad-exit=1 --label" || exit 9
shift 2
SLURM_NODEID=0 SLURMD_NODENAME=alpha "$@" && SLURM_NODEID=1 SLURMD_NODENAME=beta "$@"
"""
TORCHRUN = """#!{python}
import json, os, sys
names = ("MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "GREETING", "WANDB_API_KEY")
seen = {{name: os.environ.get(name) for name in names}}
print(json.dumps({{"argv": sys.argv[1:], "cwd": os.getcwd(), **seen}}))
"""


def program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def slurm(tmp_path: Path) -> Path:
    for name, text in {"scontrol": SCONTROL, "srun": SRUN, "torchrun": TORCHRUN.format(python=sys.executable)}.items():
        program(tmp_path / name, text)
    return tmp_path


def run(folder: Path, text: str, **env: str) -> subprocess.CompletedProcess[str]:
    job_env = {"SLURM_JOB_ID": "1207", "SLURM_JOB_NODELIST": "alpha,beta", "SLURM_NNODES": "2", **env}
    path = f"{folder}:{os.environ['PATH']}"
    argv = ["bash", "-s"]
    return subprocess.run(
        argv, input=text, capture_output=True, text=True, check=False, env={"PATH": path, **job_env}, cwd=folder
    )


def test_every_node_runs_torchrun_with_its_rank_and_literal_arguments(slurm: Path) -> None:
    nodes = [a_node(number, nproc=4, torchrun=f"{slurm}/torchrun") for number in (1, 2)]
    request = a_request(script_args=HARD, env={"GREETING": "hello $USER"}, chdir=str(slurm), rendezvous_timeout=60)
    done = run(slurm, sbatch(exported(request, nodes, FOLDERS)))
    assert done.returncode == 0, done.stderr
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["argv"] == [
        "--nnodes=2",
        "--node-rank=0",
        "--nproc-per-node=4",
        "--master-addr=127.0.0.1",
        "--master-port=29507",
        "--local-addr=127.0.0.1",
        "--rdzv-id=1207",
        "--rdzv-conf=timeout=60",
        "--max-restarts=0",
        f"--log-dir={slurm}/logs-1207",
        "--tee=3",
        "/srv/job/train.py",
        *HARD,
    ]
    assert second["argv"][1] == "--node-rank=1"
    assert second["argv"][5] == "--local-addr=10.9.9.2"
    assert (first["GREETING"], first["cwd"], first["MASTER_PORT"]) == ("hello $USER", str(slurm), "29507")
    assert (first["GLOO_SOCKET_IFNAME"], first["NCCL_SOCKET_IFNAME"]) == ("lo", "=lo")
    assert second["GLOO_SOCKET_IFNAME"] is None, "the address is on no interface of this machine"


def test_secrets_are_required_by_name_and_not_in_the_file(slurm: Path) -> None:
    nodes = [a_node(number, nproc=4, torchrun=f"{slurm}/torchrun") for number in (1, 2)]
    request = a_request(env={"WANDB_API_KEY": "s3cret-value", "X": "of-the-file"}, env_from={"X": "launch_env_file"})
    text = sbatch(exported(request, nodes, FOLDERS))
    assert "s3cret-value" not in text
    assert "of-the-file" not in text
    done = run(slurm, text, X="1")
    assert done.returncode
    assert "export WANDB_API_KEY before you run sbatch" in done.stderr
    done = run(slurm, text, X="1", WANDB_API_KEY="given")
    assert json.loads(done.stdout.splitlines()[0])["WANDB_API_KEY"] == "given"


def test_values_that_look_like_secrets_are_required_or_named() -> None:
    proxy = "http://anna:hunter2@proxy:3128"
    request = a_request(
        env={"HTTPS_PROXY": proxy, "NO_PROXY": "lab"}, script_args=["--api-key", "sk-12345678", "--token=abcd9999"]
    )
    job = exported(request, [a_node(1)], FOLDERS)
    assert (job.secrets, job.exposed) == (["HTTPS_PROXY"], ["--api-key", "--token"])
    text = sbatch(job)
    assert "hunter2" not in text
    assert "export NO_PROXY=lab" in text


@pytest.mark.parametrize(
    ("form", "image", "mode"),
    [("sbatch", None, 0o700), ("kubernetes", {"source": "x:1", "id": "", "folders": []}, 0o600)],
)
def test_exported_file_is_private_and_not_written_by_a_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, image: dict[str, Any] | None, mode: int
) -> None:
    file = tmp_path / "job"
    request = a_request(export_to=form, export_file=str(file), script_args=["--api-key", "sk-12345678"], image=image)
    monkeypatch.setattr(context, "CLIARGS", {"check": True})
    assert export(request.options, request, [a_node(1)]) == {"outcome": f"the launch would be written to {file}"}
    assert not file.exists()
    monkeypatch.setattr(context, "CLIARGS", {})
    result = export(request.options, request, [a_node(1)])
    assert file.stat().st_mode & 0o777 == mode
    assert result["warnings"][0].startswith(f"{file} contains the value of --api-key, which looks like a secret.")


def test_head_of_the_script() -> None:
    nodes = [a_node(number, nproc=8, gpus=8) for number in (1, 2)]
    request = a_request(
        backend="auto", nodes=["node1", "node2"], time_limit=90, restarts=2, fetch=["out/*"], stop_timeout=30
    )
    assert sbatch(exported(request, nodes, FOLDERS)).splitlines()[:15] == [
        "#!/bin/bash",
        "# Written by Muster. Submit it with: sbatch FILE. Slurm assigns the nodes and their ranks.",
        "#SBATCH --job-name=train",
        "#SBATCH --nodes=2",
        "#SBATCH --nodelist=node1,node2",
        "# One task per node: torchrun, which starts the ranks.",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --gres=gpu:8",
        "#SBATCH --output=%x-%j.out",
        "#SBATCH --open-mode=append",
        "#SBATCH --time=2",
        "# SIGTERM before the time limit, so that a script can write a checkpoint (launch_stop_timeout).",
        "#SBATCH --signal=TERM@60",
        "#SBATCH --requeue",
        "# Not exported: launch_fetch: the results stay in the working folder",
    ]


def test_attempts_end_after_launch_restarts(slurm: Path) -> None:
    nodes = [a_node(number, nproc=4, torchrun=f"{slurm}/torchrun") for number in (1, 2)]
    text = sbatch(exported(a_request(restarts=1), nodes, FOLDERS))
    assert run(slurm, text, SLURM_RESTART_COUNT="1").returncode == 0
    assert run(slurm, text, SLURM_RESTART_COUNT="2").returncode == 1


@pytest.mark.parametrize(
    ("nodes", "request_", "problem"),
    [
        ([a_node(1, nproc=4), a_node(2, nproc=2)], {}, "different numbers of ranks"),
        ([a_node(1), a_node(2, torchrun="/opt/x/bin/torchrun")], {}, "different environments"),
        ([a_node(1)], {"script": ""}, "Nothing to launch"),
        ([a_node(1)], {"env": {"RANK": "1"}}, "launch_env sets RANK"),
        ([a_node(1)], {"script_args": ["\ue000MASTER_ADDR\ue001"]}, "contains the character"),
    ],
)
def test_what_a_job_file_cannot_express_is_rejected(nodes: list[Any], request_: dict[str, Any], problem: str) -> None:
    with pytest.raises(PlanError) as refusal:
        exported(a_request(**request_), nodes, FOLDERS)
    assert problem in refusal.value.problems[0]


def test_image_is_not_exported_to_slurm() -> None:
    with pytest.raises(ValueError, match="launch_image is not exported to Slurm"):
        sbatch(exported(a_request(image={"source": "registry/x:1", "id": "", "folders": []}), [a_node(1)], FOLDERS))


def test_interface_of_a_node_whose_address_is_a_name(slurm: Path) -> None:
    program(slurm / "scontrol", SCONTROL.replace("NodeAddr=127.0.0.1", "NodeAddr=localhost"))
    program(slurm / "getent", '#!/bin/sh\necho "127.0.0.1  STREAM $2"\n')
    nodes = [a_node(number, nproc=4, torchrun=f"{slurm}/torchrun") for number in (1, 2)]
    for env, wanted in (({}, "=lo"), ({"NCCL_SOCKET_IFNAME": "eno1"}, "eno1")):
        done = run(slurm, sbatch(exported(a_request(env=env, chdir=str(slurm)), nodes, FOLDERS)))
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[0])["NCCL_SOCKET_IFNAME"] == wanted
