"""Notebooks are accessible only through the printed ssh command and with the token, and can be stopped and removed."""

from __future__ import annotations

import json
import shlex
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from jupyter import Jupyter, free_port, tunnel
from launch_users import forget_launch_users
from machines import NODES
from people import check_out, people
from standin_smi import COMPUTING, two_gpus
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine, Play, Result
    from people import Person

BOOK = "playbooks/notebook.yml"
ON = {"launch_users": ["anna", "ben"], "workbench_nodes": ["node1"]}
OFF: dict[str, Any] = {"launch_users": ["anna", "ben"], "workbench_nodes": []}
OWN = "/var/lib/muster/users/anna"
TOKEN = f"{OWN}/notebook/token"
FOLDER = "/run/user/2001/muster-notebook"
# Paths that a node without notebooks does not have.
GONE = ("/opt/muster/workbench", "/etc/systemd/user/muster-notebook.service", TOKEN, FOLDER)
LISTENS = "ss --no-header --listening --tcp --udp --numeric | awk '{print $1, $5}' | sort"
TORCH = "import os, torch; print(torch.__version__, os.getuid(), torch.ones(3).sum().item())"
SCALARS = """
import os
from torch.utils.tensorboard import SummaryWriter
with SummaryWriter(os.path.join(os.environ["TENSORBOARD_LOGDIR"], "board", "first")) as writer:
    for step in range(3):
        writer.add_scalar("loss", 1 / (step + 1), step)
"""
# A Jupyter kernel has threads, and Python warns about a fork in such a process since 3.12.
FORKED = """
import os, warnings
warnings.simplefilter("ignore", DeprecationWarning)
child = os.fork()
if not child:
    print("from a child", flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
CONNECT = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"


@pytest.fixture(scope="module")
def nodes(with_pytorch: None, node: Callable[[str], Machine]) -> list[Machine]:
    machines = [node(name) for name in NODES]
    for machine in machines:
        forget_launch_users(machine)
    return machines


@pytest.fixture(scope="module")
def persons(nodes: list[Machine], play: Play) -> Iterator[list[Person]]:
    """Yield two launch users and a node with JupyterLab."""
    with people(nodes, anna=2001, ben=2002) as made:
        done = play("site.yml", tags="launch_users,workbench", extravars=ON)
        assert done.rc == 0, done.stdout
        try:
            yield made
        finally:
            for machine in nodes:
                machine.inside("systemctl", "stop", *(f"user@{person.uid}.service" for person in made))
            nobody: dict[str, Any] = {"launch_users": [], "workbench_nodes": []}
            assert play("site.yml", tags="launch_users,workbench", extravars=nobody).rc == 0


@pytest.fixture
def notebook(persons: list[Person], play: Play) -> Iterator[Callable[..., Result]]:
    """Return a function that runs the playbook for anna's notebook, which runs during the test."""
    del persons

    def run(state: str, **more: Any) -> Result:
        result = play(BOOK, extravars={**ON, "notebook_user": "anna", "notebook_state": state, **more})
        assert result.rc == 0, result.stdout
        return result

    run("started")
    yield run
    run("stopped")


def seen(result: Result) -> dict[str, Any]:
    return result.results("Query, start or stop the notebook")["node1"]


def printed_command(result: Result, person: Person) -> list[str]:
    """Return the printed ssh command with the key of this user."""
    first, *rest = shlex.split(seen(result)["ssh"])
    return [first, "-F", "none", "-i", str(person.key), *rest]


@pytest.mark.pipeline
def test_notebook_requires_token(nodes: list[Machine], persons: list[Person], notebook: Callable[..., Result]) -> None:
    anna, ben = persons
    node1 = nodes[0]
    port = free_port()
    listened = node1.inside("sh", "-c", LISTENS).stdout
    result = notebook("started", notebook_port=port)
    token = anna.ssh(node1, f"cat {TOKEN}").stdout
    with tunnel(printed_command(result, anna), port):
        stranger, owner = Jupyter(port), Jupyter(port, token)
        for path in ("/api/status", "/api/contents", "/api/kernels"):
            assert stranger.ask(path)[0] == 403
        for path in ("/lab", "/tensorboard/", "/tensorboard/data/logdir"):
            code, where = stranger.ask(path)
            assert (code, where.partition("?")[0]) == (302, "/login")
        assert Jupyter(port, "0" * 48).ask("/api/status")[0] == 403
        assert owner.ask("/lab")[0] == 200
        with owner.kernel() as kernel:
            assert kernel.run(TORCH).split()[1:] == ["2001", "3.0"]
            assert kernel.run(FORKED).strip() == "from a child"
            assert kernel.run(SCALARS) == ""
            assert '"logdir"' in owner.ask("/tensorboard/data/logdir")[1]
            until(lambda: "loss" in owner.ask("/tensorboard/data/plugin/scalars/tags")[1])
            # JupyterLab, TensorBoard and a kernel are running, without a port that others can reach.
            assert node1.inside("sh", "-c", LISTENS).stdout == listened
            sockets = node1.inside("find", FOLDER, "-type", "s").stdout.split()
            assert {f"{FOLDER}/socket", f"{FOLDER}/tensorboard"} < set(sockets)
            for path in sockets:
                refused = ben.ssh(node1, f"python3 -c '{CONNECT}' {path}", check=False)
                assert "PermissionError" in refused.stderr
            assert "Permission denied" in ben.ssh(node1, f"cat {TOKEN}", check=False).stderr
        said = node1.inside("sh", "-c", "ps -eo args; journalctl --no-pager --boot").stdout
    assert "muster-notebook" in said
    for text in (said, result.stdout, json.dumps(result.events, default=str)):
        assert token not in text
    mode = node1.inside("stat", "--format=%U %a", TOKEN).stdout.split()
    assert mode == ["anna", "600"]


def test_printed_command_uses_the_bastion(
    nodes: list[Machine], persons: list[Person], notebook: Callable[..., Result], tmp_path: Path
) -> None:
    node1, node2, _ = nodes
    anna, _ = persons
    settings = tmp_path / "ssh_config"
    settings.write_text(
        f"Host *\n  UserKnownHostsFile {node1.folder}/known_hosts\n  IdentityFile {anna.key}\n"
        f"  IdentityFile {node1.folder}/id_ed25519\n  IdentitiesOnly yes\n  ControlPath none\n"
    )
    port = free_port()
    way = f"-F {settings} -J anna@{node2.address}"
    line = seen(notebook("looked_at", notebook_port=port, ansible_ssh_common_args=way))["ssh"]
    assert f"-J anna@{node2.address}" in line
    with tunnel(shlex.split(line), port):
        come = node2.inside("sh", "-c", "ss --no-header --numeric --tcp state established").stdout
        assert f"{node1.address}:22" in come
        assert Jupyter(port).ask("/api/status")[0] == 403
        assert Jupyter(port, node1.inside("cat", TOKEN).stdout).ask("/api/status")[0] == 200


def test_notebook_ports_are_closed_to_other_machines(
    notebook: Callable[..., Result], node: Callable[[str], Machine], nodes: list[Machine]
) -> None:
    del notebook
    ask = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)"
    for port in ("8888", "6006"):
        refused = node("outsider").inside("python3", "-c", ask, nodes[0].address, port, check=False)
        assert refused.returncode == 1, refused.stderr


def test_second_start_keeps_the_notebook(nodes: list[Machine], notebook: Callable[..., Result]) -> None:
    before = nodes[0].inside("cat", TOKEN).stdout
    again = notebook("started")
    assert again.changed == []
    assert nodes[0].inside("cat", TOKEN).stdout == before


@pytest.mark.slow
def test_check_mode_only_reports_the_stop(nodes: list[Machine], notebook: Callable[..., Result], play: Play) -> None:
    wanted = {**ON, "notebook_user": "anna", "notebook_state": "stopped"}
    checked = play(BOOK, extravars=wanted, check=True)
    assert checked.rc == 0, checked.stdout
    assert len(checked.changed) == 1
    assert seen(notebook("looked_at"))["notebook"]["running"]
    assert play("site.yml", tags="launch_users,workbench", extravars=ON, check=True).changed == []
    assert play("site.yml", tags="launch_users,workbench", extravars=ON).changed == []
    assert nodes[0].inside("test", "-S", f"{FOLDER}/socket", check=False).returncode == 0


def test_stop_ends_all_processes_and_keeps_files(nodes: list[Machine], notebook: Callable[..., Result]) -> None:
    nodes[0].inside("su", "-", "anna", "-c", "touch work.ipynb")
    assert notebook("stopped").changed
    assert notebook("stopped").changed == []
    for path in GONE[2:]:
        assert nodes[0].inside("test", "-e", path, check=False).returncode == 1
    # The brackets prevent pgrep from matching its own shell.
    assert nodes[0].inside("pgrep", "--full", "workbench/[lkt]", check=False).stdout == ""
    nodes[0].inside("test", "-e", "/home/anna/work.ipynb")


@pytest.mark.slow
def test_notebook_survives_a_reboot_on_request(nodes: list[Machine], notebook: Callable[..., Result]) -> None:
    node1 = nodes[0]

    def restart() -> None:
        node1.podman("restart", "--time=10")
        until(node1.ssh_answers)
        until(lambda: node1.inside("systemctl", "is-active", "user@2001.service", check=False).returncode == 0)
        status = "systemctl --user --machine=anna@.host is-system-running --wait"
        node1.inside("sh", "-c", status, check=False)

    assert notebook("started", notebook_at_boot=True).changed
    restart()
    until(lambda: node1.inside("test", "-S", f"{FOLDER}/socket", check=False).returncode == 0, PATIENCE)
    assert notebook("started", notebook_at_boot=True).changed == []
    assert notebook("started").changed
    restart()
    assert not seen(notebook("looked_at"))["notebook"]["running"]


@pytest.mark.slow
def test_launch_user_starts_a_notebook_without_root(nodes: list[Machine], persons: list[Person], play: Play) -> None:
    _, ben = persons
    shared = play("playbooks/share.yml", extravars={**ON, "share_to": str(ben.folder / "lab")})
    assert shared.rc == 0, shared.stdout
    check_out(ben)
    port = free_port()
    typed = ("ansible-playbook", BOOK, "-i", "../lab", "-e", f"notebook_port={port}", "-e")
    started = ben.run(*typed, "notebook_state=started")
    assert started.returncode == 0, started.stdout
    line = next(line for line in started.stdout.splitlines() if "Tunnel, as ben: " in line)
    token = ben.ssh(nodes[0], "cat /var/lib/muster/users/ben/notebook/token").stdout
    assert token not in started.stdout
    with tunnel(shlex.split(line.partition("as ben: ")[2].replace("ssh ", "ssh -F none ", 1)), port):
        assert Jupyter(port).ask("/api/status")[0] == 403
        assert Jupyter(port, token).ask("/api/status")[0] == 200
    other = ben.run(*typed, "notebook_user=anna", "-e", "notebook_state=stopped")
    assert other.returncode != 0
    assert ben.run(*typed, "notebook_state=stopped").returncode == 0
    shutil.rmtree(ben.checkout)


@pytest.mark.slow
def test_gpu_used_by_a_cell_is_reserved(
    nodes: list[Machine], persons: list[Person], notebook: Callable[..., Result], play: Play, tmp_path: Path
) -> None:
    node1, anna, port = nodes[0], persons[0], free_port()
    gpus = {"cluster_gpus": 2, "cluster_nproc_per_node": 1}
    wanted = {"launch_command": ["true"], "cluster_launch_nodes": ["node1"], "cluster_artifacts_dir": str(tmp_path)}

    def slots() -> list[dict[str, Any]]:
        shown = {**gpus, "status_json": str(tmp_path / "status.json"), "cluster_artifacts_dir": str(tmp_path)}
        assert play("playbooks/status.yml", limit="node1", extravars=shown).rc == 0
        holders: list[dict[str, Any]] = json.loads((tmp_path / "status.json").read_text())["nodes"][0]["holders"]
        return holders

    with two_gpus([node1]), tunnel(printed_command(notebook("started", notebook_port=port), anna), port):
        lab = Jupyter(port, anna.ssh(node1, f"cat {TOKEN}").stdout)
        with lab.kernel() as kernel:
            pid = int(kernel.run("import os; print(os.getpid())"))
            assert slots() == [], "a notebook must hold no GPU before a cell computes on one"
            node1.inside("sh", "-c", f"echo GPU-aa, {pid} >{COMPUTING}")
            (held,) = slots()
            assert (held["what"], held["user"], held["pid"], held["gpus"]) == ("notebook", "anna", pid, [0])
            refused = play("playbooks/launch.yml", extravars={**gpus, **wanted})
            assert refused.rc != 0
            assert f"PID {pid} of anna (" in refused.stdout
            assert "holds GPU 0" in refused.stdout
            assert kernel.run("print('goes on')") == "goes on\n"
        node1.inside("sh", "-c", f": >{COMPUTING}")  # as nvidia-smi lists no process after the kernel has ended
        assert slots() == []


def test_user_without_launch_permission_is_refused(persons: list[Person], play: Play) -> None:
    del persons
    refused = play(BOOK, extravars={**ON, "notebook_user": "admin", "notebook_state": "started"})
    assert refused.rc != 0
    assert 'node1 reports: "admin is not in launch_users, which is required for notebooks".' in refused.stdout


@pytest.mark.slow
def test_removal_from_the_inventory_keeps_files_of_users(
    nodes: list[Machine], notebook: Callable[..., Result], play: Play
) -> None:
    node1 = nodes[0]
    node1.inside("su", "-", "anna", "-c", f"touch work.ipynb {OWN}/result")
    checked = play("site.yml", tags="workbench", extravars=OFF, check=True)
    assert len(checked.changed) == 1
    assert seen(notebook("looked_at"))["notebook"]["running"]
    assert play("site.yml", tags="workbench", extravars=OFF).rc == 0
    for path in GONE:
        assert node1.inside("test", "-e", path, check=False).returncode == 1, path
    node1.inside("test", "-e", f"{OWN}/result", "-a", "-e", "/home/anna/work.ipynb")
    assert play("site.yml", tags="workbench", extravars=OFF).changed == []
    assert play("site.yml", tags="workbench", extravars=ON).rc == 0
