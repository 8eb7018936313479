"""The PyTorch environments of a node: built, checked, repaired, switched, kept, or refused with one sentence."""

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
# A settings file that every pip reads and that no node has.
SETTINGS = "/etc/xdg/pip/pip.conf"
OWNED = "/opt/muster-test-owned"  # file that payloads/build_backend.py tries to write
LOOK = "Check PyTorch"
FETCH = "Download the wheels on one node for all nodes"
TASK = "Provide PyTorch (half a minute for a new environment, some minutes with CUDA)"


@pytest.fixture(scope="module")
def machine(networked: list[Machine], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Yield a node with a folder of stub wheels. Remove the files of these tests before and after."""
    machine = networked[0]
    wheels = tmp_path_factory.mktemp("wheels")
    make_wheels(wheels)
    machine.inside("rm", "-rf", ROOT, WHEELS)
    subprocess.run(["podman", "cp", str(wheels), f"{machine.container}:{WHEELS}"], check=True)
    machine.inside("chmod", "-R", "a+rX", WHEELS)
    yield machine
    machine.inside("rm", "-rf", ROOT, WHEELS)


@pytest.fixture
def clean(machine: Machine) -> None:
    """Remove all environments."""
    machine.inside("rm", "-rf", ROOT)


@pytest.fixture(scope="module")
def provide(
    play: Play, machine: Machine, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., tuple[Result, dict[str, Any]]]:
    """Return a function that runs the step on the node and returns the play's result and the module's result."""
    lock = tmp_path_factory.mktemp("lock") / "pytorch.lock.txt"

    def run(version: str = "2.0.0", *, check: bool = False, **requested: Any) -> tuple[Result, dict[str, Any]]:
        extravars = {
            "cluster_torch_version": version,
            "pytorch_root": ROOT,
            "pytorch_offline_dir": WHEELS,
            "pytorch_packages": [],
            "pytorch_lock": str(lock),
            "full": True,  # the role checks the node in any case
            **requested,
        }
        result = play("playbooks/pytorch.yml", extravars=extravars, limit=machine.name, check=check)
        looked, fetched, done = (result.results(task).get(machine.name, {}) for task in (LOOK, FETCH, TASK))
        return result, {**looked, **fetched, **done, "diff": looked.get("diff")}

    return run


@pytest.fixture
def built(provide: Callable[..., tuple[Result, dict[str, Any]]], machine: Machine) -> str:
    """Make torch 2.0.0 the current environment. Return its folder."""
    result, _ = provide()
    assert result.rc == 0, result.stdout
    return live(machine)


def live(machine: Machine) -> str:
    return machine.inside("readlink", "-f", f"{ROOT}/current").stdout.strip()


def environments(machine: Machine) -> set[str]:
    return set(machine.inside("ls", f"{ROOT}/envs").stdout.split())


@pytest.mark.usefixtures("clean")
def test_environment_is_built_on_a_bare_node(provide: Any, machine: Machine) -> None:
    _, expected = provide(check=True)
    assert expected["changed"]
    assert "torch: none" in expected["diff"]["before"]
    assert "torch: 2.0.0+cpu" in expected["diff"]["after"]
    assert machine.inside("test", "-e", ROOT, check=False).returncode == 1, "check mode created files"

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
        pytest.param("rm -r {env}/lib/python3*/site-packages/tiny*", id="a dependency of torch is missing"),
        pytest.param("truncate -s 3 {env}/lib/python3*/site-packages/torch/version.py", id="a file is truncated"),
        pytest.param("ln -sfn /usr {root}/current", id="the link has another target"),
        pytest.param("ln -sf /nowhere/python3 {env}/bin/python", id="its Python is missing"),
    ],
)
def test_damage_is_detected_and_repaired(provide: Any, machine: Machine, built: str, damage: str) -> None:
    machine.inside("sh", "-ec", damage.format(env=built, root=ROOT))
    result, repaired = provide()
    assert result.rc == 0, result.stdout
    assert repaired["changed"]
    assert repaired["plan"]["reasons"]
    command = f"sudo -u muster {ROOT}/current/bin/python -c 'import torch, tiny; print(torch.__version__)'"
    assert machine.ssh(command).stdout.strip() == "2.0.0+cpu"
    assert len(environments(machine)) == 1


def test_another_version_is_built_and_switching_back_needs_no_build(provide: Any, machine: Machine, built: str) -> None:
    result, done = provide("2.1.0")
    assert result.rc == 0, result.stdout
    assert done["torch"]["version"] == "2.1.0+cpu"
    assert len(environments(machine)) == 2

    _, back = provide()
    assert (back["plan"]["build"], back["plan"]["switch"]) == ("", True)
    assert live(machine) == built


@pytest.mark.moment
def test_environment_in_use_is_not_removed(provide: Any, machine: Machine, built: str) -> None:
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
    """Make every pip of the machine wait at a named pipe (payloads/kill_pip.py)."""
    machine.inside("sh", "-ec", f"mkdir -p $(dirname {SETTINGS}); mkfifo {SETTINGS}")
    try:
        yield
    finally:
        # Release waiting readers with an empty file.
        machine.inside("sh", "-c", f"exec 3<>{SETTINGS}; rm {SETTINGS}; rmdir $(dirname {SETTINGS})")


@pytest.mark.moment
@pytest.mark.usefixtures("clean")
def test_next_run_completes_a_killed_run(provide: Any, machine: Machine) -> None:
    """Kill pip and the module that waits for pip. The killed run leaves a folder behind."""
    with held_by_its_settings(machine), ThreadPoolExecutor() as pool:
        run = pool.submit(provide)
        program = (PAYLOADS / "kill_pip.py").read_text()
        machine.inside("timeout", "300", "python3", "-c", program, SETTINGS, f"{ROOT}/envs")
        ended, _ = run.result()
    assert ended.rc != 0
    assert len(environments(machine)) == 1, "the killed run must leave a folder"

    result, done = provide()
    assert result.rc == 0, result.stdout
    assert done["plan"]["remove"]
    assert len(environments(machine)) == 1


def test_unavailable_version_is_refused_with_one_sentence(provide: Any, machine: Machine, built: str) -> None:
    result, refused = provide("9.9.9")
    assert result.rc != 0
    assert refused["msg"].startswith("node1: pip cannot find torch==9.9.9+cpu; available: 2.0.0+cpu, 2.1.0+cpu, ")
    assert "pytorch_index_url" in refused["msg"]
    assert refused["pip_output"]
    assert live(machine) == built, "the current environment must be kept"
    assert environments(machine) == {built.rpartition("/")[2]}


def test_build_for_a_wrong_variant_is_not_used(provide: Any, machine: Machine, built: str) -> None:
    result, refused = provide("2.2.0")
    assert result.rc != 0
    assert refused["msg"].startswith("node1: the build is for cu130, but cpu is requested. ")
    assert live(machine) == built


def test_verify_checks_and_changes_nothing(provide: Any, machine: Machine, built: str) -> None:
    before = machine.inside("ls", "-lR", "--full-time", ROOT).stdout
    result, seen = provide(pytorch_mode="verify")
    assert result.rc == 0, result.stdout
    assert seen["torch"]["imported"]
    result, seen = provide("2.1.0", pytorch_mode="verify")
    assert result.rc != 0
    assert seen["msg"].startswith("node1: torch 2.0.0+cpu is installed, but 2.1.0+cpu is requested. ")
    assert machine.inside("ls", "-lR", "--full-time", ROOT).stdout == before


@pytest.fixture
def sourced(machine: Machine, tmp_path: Path, clean: None) -> Iterator[str]:
    """Offer a source package and a wheel that requires it by URL. Return the wheel."""
    source_package(tmp_path, (PAYLOADS / "build_backend.py").read_text())
    wheel(tmp_path, "direct", "1.0", {}, requires=f"sourced @ file://{WHEELS}/sourced-1.0.tar.gz")
    for path in tmp_path.iterdir():
        subprocess.run(["podman", "cp", str(path), f"{machine.container}:{WHEELS}/{path.name}"], check=True)
    machine.inside("chmod", "-R", "a+rX", WHEELS)
    yield "direct==1.0"
    machine.inside("sh", "-c", f"rm -f {OWNED} {WHEELS}/sourced* {WHEELS}/direct*")


def owned(machine: Machine) -> str:
    """Return the file that a build as root would have written outside of its folder. Return "" if there is none."""
    return machine.inside("sh", "-c", f"cat {OWNED} 2>/dev/null || true").stdout


@pytest.mark.slow
def test_source_is_built_only_on_request_and_never_as_root(provide: Any, machine: Machine, sourced: str) -> None:
    result, refused = provide(pytorch_packages=["sourced==1.0"], pytorch_lock="")
    assert result.rc != 0
    assert "pip cannot find sourced==1.0" in refused["msg"]

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
def test_dependency_by_url_is_refused_and_its_code_is_not_run(provide: Any, machine: Machine, sourced: str) -> None:
    result, refused = provide(pytorch_packages=[sourced], pytorch_lock="")
    assert result.rc != 0
    assert "packages are installed only from an index or a folder" in refused["msg"]
    assert owned(machine) == ""


@pytest.mark.slow
@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("folder", [WHEELS, ROOT])
def test_folders_writable_by_others_are_refused(provide: Any, machine: Machine, folder: str) -> None:
    machine.inside("sh", "-ec", f"mkdir -p {folder}; chmod o+w {folder}")
    try:
        result, refused = provide(check=True)
        assert result.rc != 0
        assert f"is not safe to use: {folder} is writable by all users" in refused["msg"]
    finally:
        machine.inside("chmod", "o-w", folder)
