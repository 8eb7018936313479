"""The complete workbench of a lab: environments, notebooks and shared data are declared, used and removed.

Two users launch in named environments and view the results in JupyterLab and TensorBoard, through the printed ssh
command and a headless Chromium. Screenshots go to artifacts/screenshots. Finally everything is removed from the
inventory.
"""

from __future__ import annotations

import json
import shlex
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from chromium import Chromium, find
from conda_packages import make_channel
from exported import EXPORT, PATH, exported, skip_if_unsupported
from jupyter import Jupyter, free_port, tunnel
from launch_users import forget_launch_users
from machines import NODES
from paths import INVENTORY, ROOT, SANDBOX
from people import check_out, people
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine, Play, Result
    from people import Person

pytestmark = pytest.mark.slow
pytest.importorskip("rattler", reason="conda packages need py-rattler on the controller (requirements/conda.txt)")

PICTURES = ROOT / "artifacts/screenshots"
NAMED = "/opt/muster/pytorch/named"
YML = "channels: [{channel}]\ndependencies: [greet, python 3.11.*]\n"
SMALL = ["--width=8", "--num-workers=0", "--log-every=1", "--samples=960", "--epochs=3", "--global-batch=96"]
CELL = "import torch\nprint('torch', torch.__version__, 'adds up to', torch.ones(3).sum().item())"
SHOWN = "document.body.innerText"
# TensorBoard has loaded the values of its charts and has had 1.5 s to draw them.
DRAWN = (
    "performance.getEntriesByType('resource').some("
    "one => one.name.includes('timeSeries') && performance.now() - one.responseEnd > 1500)"
)
# Paths that a node does not have after the removal from the inventory.
GONE = (
    NAMED,
    "/opt/muster/workbench",
    "/etc/systemd/user/muster-notebook.service",
    "/etc/systemd/system/data.automount",
)
LAUNCH = ("ansible-playbook", "playbooks/launch.yml", "-i", "../lab", "-e")


class Walk:
    def __init__(self, play: Play, nodes: list[Machine], folder: Path, mount: dict[str, Any]) -> None:
        self.play, self.nodes, self.folder = play, nodes, folder
        self.inventory = folder / "inventory"
        shutil.copytree(INVENTORY, self.inventory)
        shutil.copy(SANDBOX / "pytorch.lock.txt", self.inventory)
        make_channel(folder / "channel")
        (self.inventory / "team.txt").write_text("tensorboard\n")
        (self.inventory / "environment.yml").write_text(YML.format(channel=(folder / "channel").as_uri()))
        self.declared: dict[str, Any] = {
            "cluster_environments": {"team": {"requirements": "team.txt"}, "bio": {"conda": "environment.yml"}},
            "launch_users": ["anna", "ben"],
            "workbench_nodes": ["node1"],
            "shared_data_mounts": [mount],
        }

    def declare(self, declared: dict[str, Any]) -> None:
        own = {"pytorch_lock": "{{ inventory_dir }}/pytorch.lock.txt", **declared}
        (self.inventory / "group_vars/gpu_nodes.yml").write_text(yaml.safe_dump(own))

    def run(self, playbook: str = "site.yml", **more: Any) -> Result:
        tags = "inspect,baseline,network,pytorch" if playbook == "site.yml" else None
        result = self.play(playbook, inventory=self.inventory, tags=tags, extravars=more or None)
        assert result.rc == 0, result.stdout
        return result


@pytest.fixture(scope="module")
def nodes(with_pytorch: None, node: Callable[[str], Machine]) -> list[Machine]:
    machines = [node(name) for name in NODES]
    skip_if_unsupported(machines[0])
    if find() is None:
        pytest.skip("no Chromium on this machine (script/setup dev installs it)")
    for machine in machines:
        forget_launch_users(machine)
    return machines


@pytest.fixture(scope="module")
def walk(nodes: list[Machine], play: Play, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    with exported(nodes[2], nodes) as mount:
        walk = Walk(play, nodes, tmp_path_factory.mktemp("walk"), mount)
        yield walk
        walk.declare({})
        walk.run()


@pytest.fixture(scope="module")
def persons(nodes: list[Machine], walk: Walk) -> Iterator[tuple[Person, Person]]:
    """Configure the declared inventory. Yield two users with the shared folder."""
    with people(nodes, anna=2001, ben=2002) as (anna, ben):
        walk.declare(walk.declared)
        walk.run()
        for person in (anna, ben):
            walk.run("playbooks/share.yml", share_to=str(person.folder / "lab"))
            check_out(person)
        try:
            yield anna, ben
        finally:
            for machine in nodes:
                machine.inside("systemctl", "stop", *(f"user@{person.uid}.service" for person in (anna, ben)))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    program = find()
    assert program
    chromium = Chromium(program, tmp_path_factory.mktemp("chromium"))
    yield chromium
    chromium.close()


def launch(person: Person, **requested: Any) -> str:
    done = person.run(*LAUNCH, json.dumps(requested))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def shown(browser: Chromium, text: str) -> None:
    until(lambda: text in browser.value(SHOWN), PATIENCE, f"the page shows {text!r}")


def notebook(walk: Walk, person: Person, port: int) -> tuple[list[str], str]:
    """Start the user's notebook. Return the ssh command and the token."""
    result = walk.run("playbooks/notebook.yml", notebook_user=person.name, notebook_state="started", notebook_port=port)
    line = result.results("Query, start or stop the notebook")["node1"]["ssh"]
    first, *rest = shlex.split(line)
    token = person.ssh(walk.nodes[0], f"cat /var/lib/muster/users/{person.name}/notebook/token").stdout
    return [first, "-F", "none", "-i", str(person.key), *rest], token


def test_users_launch_in_different_environments(walk: Walk, persons: tuple[Person, Person]) -> None:
    anna, ben = persons
    said = launch(
        anna,
        launch_environment="team",
        launch_script_src="examples/cifar10/train.py",
        launch_args=SMALL,
        launch_env={"OMP_NUM_THREADS": "1"},
    )
    assert "User launch by anna, without root" in said
    said = launch(ben, launch_environment="bio", launch_command=["greet"], launch_show_rank=0)
    assert f"greetings 1.0 from {NAMED}/bio/envs/" in said
    events = walk.nodes[0].inside("find", "/var/lib/muster/users/anna", "-name", "events.out.tfevents.*").stdout
    assert events.count("\n") == 1
    walk.nodes[0].inside("runuser", "-u", "muster", "--", "sh", "-c", f"echo from node1 > {PATH}/result")
    assert walk.nodes[1].inside("cat", f"{PATH}/result").stdout == "from node1\n"


def test_pages_open_through_the_printed_command_with_the_token(
    walk: Walk, persons: tuple[Person, Person], browser: Chromium
) -> None:
    anna, ben = persons
    port, other = free_port(), free_port()
    line, token = notebook(walk, anna, port)
    his_line, his_token = notebook(walk, ben, other)
    lab = f"http://localhost:{port}"
    with tunnel(line, port), tunnel(his_line, other):
        assert Jupyter(other, token).ask("/api/status")[0] == 403, "a token must be valid only for its own notebook"
        assert Jupyter(other, his_token).ask("/api/status")[0] == 200
        browser.go(f"{lab}/tensorboard/")
        shown(browser, "token")
        assert "/login" in browser.value("location.pathname")
        browser.picture(PICTURES / "walk_without_the_token.png", whole=False)

        browser.go(f"{lab}/lab?token={token}")  # the browser keeps the cookie from here on
        browser.go(f"{lab}/tensorboard/", width=1400)
        shown(browser, "loss")
        until(lambda: browser.value(DRAWN), PATIENCE, "TensorBoard shows the scalars")
        browser.picture(PICTURES / "walk_tensorboard.png", whole=False)

        # Last step, because leaving a page with an unsaved notebook shows a dialog.
        cell: dict[str, Any] = {"cell_type": "code", "source": CELL, "metadata": {}, "outputs": []}
        cell["execution_count"] = None
        kernel = {"name": "python3", "display_name": "PyTorch", "language": "python"}
        book = {"cells": [cell], "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
        Jupyter(port, token).request_json("/api/contents/walk.ipynb", "PUT", {"type": "notebook", "content": book})
        browser.go(f"{lab}/lab/tree/walk.ipynb?token={token}", width=1400)
        until(lambda: browser.value("!!document.querySelector('.jp-Notebook .cm-content')"), PATIENCE, "the cell")
        shown(browser, "Idle")
        browser.value("document.querySelector('.jp-Notebook .cm-content').focus()")
        browser.press("Enter", 13, shift=True)
        shown(browser, "adds up to 3.0")
        browser.picture(PICTURES / "walk_jupyterlab.png", whole=False)


def test_second_run_changes_nothing(walk: Walk, persons: tuple[Person, Person]) -> None:
    del persons
    assert walk.run().changed == []


def test_removal_from_the_inventory_keeps_files_of_users(walk: Walk, persons: tuple[Person, Person]) -> None:
    del persons
    walk.declare({})
    walk.run()
    for machine in walk.nodes:
        for path in GONE:
            assert machine.inside("test", "-e", path, check=False).returncode == 1, (machine.name, path)
    first, _, server = walk.nodes
    first.inside("test", "-s", "/home/anna/walk.ipynb")
    assert first.inside("find", "/var/lib/muster/users/anna", "-name", "events.out.tfevents.*").stdout
    assert server.inside("cat", f"{EXPORT}/result").stdout == "from node1\n"
    assert {path.name for path in walk.inventory.glob("*.lock.txt")} >= {"team.lock.txt", "bio.lock.txt"}
    assert walk.run().changed == []
