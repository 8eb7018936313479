"""The PyTorch environment of a node: built, looked at, repaired, switched, kept, and refused in one sentence."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from outside import PAYLOADS
from standin_wheels import make_wheels, source_package, wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine, Play, Result

ROOT = "/opt/muster-test"
WHEELS = "/srv/muster-test-wheels"
# One of the files that every pip reads its settings from, and that no node has.
SETTINGS = "/etc/xdg/pip/pip.conf"
OWNED = "/opt/muster-test-owned"  # what payloads/build_backend.py tries to write
LOOK = "Check PyTorch"
FETCH = "Download the wheels on one node for all nodes"
TASK = "Provide PyTorch (half a minute for a new environment, some minutes with CUDA)"


@pytest.fixture(scope="module")
def machine(node: Callable[[str], Machine], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A node with a folder of stand-in wheels, and nothing else of these tests before or after."""
    machine = node("node1")
    wheels = tmp_path_factory.mktemp("wheels")
    make_wheels(wheels)
    machine.inside("rm", "-rf", ROOT, WHEELS)
    subprocess.run(["podman", "cp", str(wheels), f"{machine.container}:{WHEELS}"], check=True)
    machine.inside("chmod", "-R", "a+rX", WHEELS)
    yield machine
    machine.inside("rm", "-rf", ROOT, WHEELS)


@pytest.fixture
def clean(machine: Machine) -> None:
    """No environment is there."""
    machine.inside("rm", "-rf", ROOT)


@pytest.fixture(scope="module")
def provide(
    play: Play, machine: Machine, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., tuple[Result, dict[str, Any]]]:
    """Run the step on the node; return how it ended, and what the module returned."""
    lock = tmp_path_factory.mktemp("lock") / "pytorch.lock.txt"

    def run(version: str = "2.0.0", *, check: bool = False, **requested: Any) -> tuple[Result, dict[str, Any]]:
        extravars = {
            "cluster_torch_version": version,
            "pytorch_root": ROOT,
            "pytorch_offline_dir": WHEELS,
            "pytorch_packages": [],
            "pytorch_lock": str(lock),
            "full": True,  # the role looks itself, whatever there is to do
            **requested,
        }
        result = play("playbooks/pytorch.yml", extravars=extravars, limit=machine.name, check=check)
        looked, fetched, done = (result.results(task).get(machine.name, {}) for task in (LOOK, FETCH, TASK))
        return result, {**looked, **fetched, **done, "diff": looked.get("diff")}

    return run


@pytest.fixture
def built(provide: Callable[..., tuple[Result, dict[str, Any]]], machine: Machine) -> str:
    """Torch 2.0.0 is live; return its folder."""
    result, _ = provide()
    assert result.rc == 0, result.stdout
    return live(machine)


def live(machine: Machine) -> str:
    return machine.inside("readlink", "-f", f"{ROOT}/current").stdout.strip()


def environments(machine: Machine) -> set[str]:
    return set(machine.inside("ls", f"{ROOT}/envs").stdout.split())


@pytest.mark.usefixtures("clean")
def test_from_a_bare_node_to_a_finished_one(provide: Any, machine: Machine) -> None:
    _, expected = provide(check=True)
    assert expected["changed"]
    assert "torch: none" in expected["diff"]["before"]
    assert "torch: 2.0.0+cpu" in expected["diff"]["after"]
    assert machine.inside("test", "-e", ROOT, check=False).returncode == 1, "check mode made something"

    result, done = provide()
    assert result.rc == 0, result.stdout
    assert done["diff"] == expected["diff"]
    assert done["torch"]["backends"] == ["gloo"]
    assert done["torch"]["looked_as"] == "muster"
    assert {finding["status"] for finding in done["findings"]} == {"pass"}
    assert done["environment"] == live(machine)

    result, again = provide()
    assert result.rc == 0, result.stdout
    assert not again["changed"]
    _, checked = provide(check=True)
    assert not checked["changed"]
    assert checked["diff"]["before"] == checked["diff"]["after"]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param("rm -r {env}/lib/python3*/site-packages/tiny*", id="a package that torch needs is gone"),
        pytest.param("truncate -s 3 {env}/lib/python3*/site-packages/torch/version.py", id="a file is cut short"),
        pytest.param("ln -sfn /usr {root}/current", id="the link leads elsewhere"),
        pytest.param("ln -sf /nowhere/python3 {env}/bin/python", id="its Python is gone"),
    ],
)
def test_damage_is_seen_and_repaired(provide: Any, machine: Machine, built: str, damage: str) -> None:
    machine.inside("sh", "-ec", damage.format(env=built, root=ROOT))
    result, repaired = provide()
    assert result.rc == 0, result.stdout
    assert repaired["changed"]
    assert repaired["plan"]["reasons"]
    command = f"sudo -u muster {ROOT}/current/bin/python -c 'import torch, tiny; print(torch.__version__)'"
    assert machine.ssh(command).stdout.strip() == "2.0.0+cpu"
    assert len(environments(machine)) == 1


def test_another_version_is_built_beside_and_the_way_back_is_short(provide: Any, machine: Machine, built: str) -> None:
    result, done = provide("2.1.0")
    assert result.rc == 0, result.stdout
    assert done["torch"]["version"] == "2.1.0+cpu"
    assert len(environments(machine)) == 2

    _, back = provide()
    assert (back["plan"]["build"], back["plan"]["switch"]) == ("", True)
    assert live(machine) == built


@pytest.mark.moment
def test_what_a_process_uses_is_not_removed(provide: Any, machine: Machine, built: str) -> None:
    name = built.rpartition("/")[2]
    started = machine.inside("sh", "-ec", f"cd {built}; sleep infinity >/dev/null 2>&1 & echo $!")
    try:
        result, _ = provide("2.1.0", pytorch_keep=0)
        assert result.rc == 0, result.stdout
        assert name in environments(machine)
    finally:
        machine.inside("kill", started.stdout.strip())
    _, after = provide("2.1.0", pytorch_keep=0)
    assert after["plan"]["remove"] == [name]
    assert name not in environments(machine)


@contextmanager
def held_by_its_settings(machine: Machine) -> Iterator[None]:
    """Every pip of the machine waits at a named pipe (payloads/kill_pip.py)."""
    machine.inside("sh", "-ec", f"mkdir -p $(dirname {SETTINGS}); mkfifo {SETTINGS}")
    try:
        yield
    finally:
        # Whoever still waits there is let go, and finds no settings.
        machine.inside("sh", "-c", f"exec 3<>{SETTINGS}; rm {SETTINGS}; rmdir $(dirname {SETTINGS})")


@pytest.mark.moment
@pytest.mark.usefixtures("clean")
def test_a_killed_run_is_finished_by_the_next(provide: Any, machine: Machine) -> None:
    """pip and the module that waits for it are killed, and a folder is left behind."""
    with held_by_its_settings(machine), ThreadPoolExecutor() as pool:
        run = pool.submit(provide)
        program = (PAYLOADS / "kill_pip.py").read_text()
        machine.inside("timeout", "300", "python3", "-c", program, SETTINGS, f"{ROOT}/envs")
        ended, _ = run.result()
    assert ended.rc != 0
    assert len(environments(machine)) == 1, "nothing was left behind, so nothing is tested"

    result, done = provide()
    assert result.rc == 0, result.stdout
    assert done["plan"]["remove"]
    assert len(environments(machine)) == 1


def test_an_impossible_version_is_refused_in_one_sentence(provide: Any, machine: Machine, built: str) -> None:
    result, refused = provide("9.9.9")
    assert result.rc != 0
    assert refused["msg"].startswith("node1: pip finds no torch==9.9.9+cpu, and is offered 2.0.0+cpu, 2.1.0+cpu, ")
    assert "pytorch_index_url" in refused["msg"]
    assert refused["pip_output"]
    assert live(machine) == built, "what worked no longer does"
    assert environments(machine) == {built.rpartition("/")[2]}


def test_a_build_that_is_not_what_it_says_is_not_switched_to(provide: Any, machine: Machine, built: str) -> None:
    result, refused = provide("2.2.0")
    assert result.rc != 0
    assert refused["msg"].startswith("node1: the build is for cu130, and cpu is wanted. ")
    assert live(machine) == built


def test_verify_looks_and_changes_nothing(provide: Any, machine: Machine, built: str) -> None:
    before = machine.inside("ls", "-lR", "--full-time", ROOT).stdout
    result, seen = provide(pytorch_mode="verify")
    assert result.rc == 0, result.stdout
    assert seen["torch"]["imported"]
    result, seen = provide("2.1.0", pytorch_mode="verify")
    assert result.rc != 0
    assert seen["msg"].startswith("node1: torch is 2.0.0+cpu, and 2.1.0+cpu is wanted. ")
    assert machine.inside("ls", "-lR", "--full-time", ROOT).stdout == before


@pytest.fixture
def sourced(machine: Machine, tmp_path: Path, clean: None) -> Iterator[str]:
    """Offer a package that is there as source alone, and a wheel that requires it by its address; return that wheel."""
    source_package(tmp_path, (PAYLOADS / "build_backend.py").read_text())
    wheel(tmp_path, "direct", "1.0", {}, requires=f"sourced @ file://{WHEELS}/sourced-1.0.tar.gz")
    for path in tmp_path.iterdir():
        subprocess.run(["podman", "cp", str(path), f"{machine.container}:{WHEELS}/{path.name}"], check=True)
    machine.inside("chmod", "-R", "a+rX", WHEELS)
    yield "direct==1.0"
    machine.inside("sh", "-c", f"rm -f {OWNED} {WHEELS}/sourced* {WHEELS}/direct*")


def owned(machine: Machine) -> str:
    """What a build has written as root, outside of its own folder."""
    return machine.inside("sh", "-c", f"cat {OWNED} 2>/dev/null || true").stdout


@pytest.mark.slow
def test_source_is_not_built_unless_that_is_requested_and_never_as_root(
    provide: Any, machine: Machine, sourced: str
) -> None:
    result, refused = provide(pytorch_packages=["sourced==1.0"], pytorch_lock="")
    assert result.rc != 0
    assert "pip finds no sourced==1.0" in refused["msg"]

    result, _ = provide(pytorch_packages=["sourced==1.0"], pytorch_source_builds=["sourced"], pytorch_lock="")
    assert result.rc == 0, result.stdout
    command = f"{ROOT}/current/bin/python -c 'import sourced; print(sourced.BUILT_BY)'"
    assert int(machine.ssh(command).stdout) > 1000
    assert owned(machine) == ""
    left = machine.inside(
        "sh", "-c", "ls -d /var/cache/muster-wheels-* /var/cache/private/muster-wheels-* 2>/dev/null || true"
    )
    assert left.stdout == ""


@pytest.mark.slow
def test_what_a_package_requires_by_its_address_is_refused_and_root_runs_nothing_of_it(
    provide: Any, machine: Machine, sourced: str
) -> None:
    result, refused = provide(pytorch_packages=[sourced], pytorch_lock="")
    assert result.rc != 0
    assert "only what an index or a folder has is installed" in refused["msg"]
    assert owned(machine) == ""


@pytest.mark.slow
@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("folder", [WHEELS, ROOT])
def test_folders_that_others_may_write_are_refused(provide: Any, machine: Machine, folder: str) -> None:
    machine.inside("sh", "-ec", f"mkdir -p {folder}; chmod o+w {folder}")
    try:
        result, refused = provide(check=True)
        assert result.rc != 0
        assert f"is not safe to use: everybody may write in {folder}" in refused["msg"]
    finally:
        machine.inside("chmod", "o-w", folder)
