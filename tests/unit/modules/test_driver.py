"""What the modules of the driver ask apt for, and what they answer when it does not do it."""

from __future__ import annotations

from subprocess import CompletedProcess
from typing import TYPE_CHECKING, Any

import pytest

from modules_here import Commands, among_files_of, answer, load, write
from muster.nvidia_driver.removal import remark
from muster_node.tools.run import Answer

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

OLD, NEW = "580.95.05-1ubuntu1", "580.159.04-1ubuntu1"
OFFERED = {"nvidia-open": NEW, "libnvidia-compute-580": NEW, "nvidia-fabricmanager": NEW}
INST = "Inst {} (" + NEW + " NVIDIA:noble [amd64])\n"
OPTIONS = (
    "apt-get --yes --no-install-recommends --allow-downgrades --fix-broken -o DPkg::Lock::Timeout=300"
    " -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold"
)
INSTALL, SIMULATE = f"{OPTIONS} install", f"{OPTIONS} --simulate install"


def packages(monkeypatch: pytest.MonkeyPatch, simulated: Any, installed: Any = "", **there: str) -> Any:
    """nvidia_driver_packages on a node with these packages, and what apt answers there."""
    module = load("nvidia_driver_packages")
    shown = "".join(f"{name.replace('_', '-')} {version} install installed amd64\n" for name, version in there.items())
    monkeypatch.setattr(module, "show_packages", lambda: Answer(shown))
    table = "".join(
        f"{name}:\n  Version table:\n     {version} 500\n        500 https://x.example.org Packages\n"
        for name, version in OFFERED.items()
    )
    places = "Package files:\n 500 https://x.example.org Packages\n     release o=NVIDIA,l=NVIDIA CUDA\n"
    said = {"apt-cache policy": table, SIMULATE: simulated, INSTALL: installed}
    commands = Commands(said)

    def run(*argv: str, **options: Any) -> Answer:
        if argv == ("apt-cache", "policy"):
            return Answer(places)
        if argv[0] == "apt-get":
            wanted = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1", "LC_ALL": "C.UTF-8"}
            assert (options["seconds"], wanted) == (None, {name: options["env"][name] for name in wanted})
            assert "PATH" in options["env"]
        found: Answer = commands(*argv)
        return found

    monkeypatch.setattr(module, "command", run)
    module.__dict__["commands"] = commands
    return module


KEEP = "remove them first, or keep the driver that is there (gpu_stack_driver)"
GIVEN: dict[str, Any] = {"node": "node1", "packages": ["nvidia-open"], "source": "nvidia", "branch": 580}


@pytest.mark.parametrize("check", [True, False])
def test_the_driver_is_installed_with_what_else_the_source_has(monkeypatch: pytest.MonkeyPatch, check: bool) -> None:
    simulated = f"Inst nvidia-open [{OLD}] ({NEW} x)\n{INST.format('libnvidia-compute')}Remv nvidia-old [1]\n"
    module = packages(monkeypatch, simulated, nvidia_open=OLD, nvidia_old="1")
    optional = ["nvidia-fabricmanager", "nvidia-imex"]
    words = f"nvidia-open={NEW} nvidia-fabricmanager={NEW}"
    answered = answer(module, **GIVEN, optional=optional, check=check)
    asked = [word for word in module.commands.ran[1].removeprefix(SIMULATE).split() if not word.startswith("--")]
    assert " ".join(asked).startswith(words)
    assert answered == {
        "changed": True,
        "asked": asked,
        "diff": {
            "before": f"nvidia-old 1\nnvidia-open {OLD}\n",
            "after": f"libnvidia-compute {NEW}\nnvidia-open {NEW}\n",
        },
    }
    policy = "apt-cache policy nvidia-open nvidia-fabricmanager nvidia-imex nvidia-old"
    ran = [policy, f"{SIMULATE} {' '.join(asked)}", f"{INSTALL} {' '.join(asked)}"]
    assert module.commands.ran == (ran[:2] if check else ran)


def test_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    module = packages(monkeypatch, "", nvidia_open=NEW)
    said = {"changed": False, "asked": [f"nvidia-open={NEW}"], "diff": {"before": "", "after": ""}}
    assert answer(module, **GIVEN) == said
    assert len(module.commands.ran) == 2


def test_all_is_unpacked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    module = packages(monkeypatch, INST.format("nvidia-open"), nvidia_open=NEW)
    assert answer(module, **GIVEN, reinstall=True)["asked"] == [f"nvidia-open={NEW}"]
    assert module.commands.ran[1:] == [f"{begin} --reinstall nvidia-open={NEW}" for begin in (SIMULATE, INSTALL)]


def test_a_part_that_apt_would_leave_behind_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose name has the branch comes along, as a rule: it is named where it would not."""
    part = "libnvidia-compute-580"
    alone = INST.format("nvidia-open")
    module = packages(monkeypatch, [alone, alone + INST.format(part)], nvidia_open=OLD, libnvidia_compute_580=OLD)
    asked = [f"nvidia-open={NEW}", f"{part}={NEW}"]
    answered = answer(module, **GIVEN, check=True)
    assert answered["asked"] == asked
    assert answered["diff"]["after"] == f"{part} {NEW}\nnvidia-open {NEW}\n"
    assert module.commands.ran[1:] == [f"{SIMULATE} {asked[0]}", f"{SIMULATE} {' '.join(asked)}"]


@pytest.mark.parametrize("options", [{"version": "580.95.05"}, {"version": "580.159.04", "exact": True}])
def test_another_version_of_the_branch_does_where_none_is_exact(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    module = packages(monkeypatch, INST.format("nvidia-open"))
    assert answer(module, **GIVEN, **options)["asked"] == [f"nvidia-open={NEW}"]


@pytest.mark.parametrize(
    ("options", "requested"),
    [({"version": "580.95.05", "exact": True}, "580.95.05"), ({"branch": 590}, "a driver 590")],
)
def test_a_version_that_the_source_does_not_have(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], requested: str
) -> None:
    module = packages(monkeypatch, "")
    has = f"for this system: of nvidia-open it has {NEW}. Nothing was changed."
    assert answer(module, **{**GIVEN, **options})["msg"] == f"node1: nvidia does not have {requested} {has}"


@pytest.mark.parametrize(
    ("simulated", "why"),
    [
        (
            {"text": "", "code": 100, "aside": "E: Unable to locate\nE: held packages\n"},
            f"apt cannot install nvidia-open={NEW}: Unable to locate; held packages",
        ),
        (
            f"{INST.format('nvidia-open')}Remv slurm [1]\n",
            f"apt would remove slurm, which depend on what has to go: {KEEP}",
        ),
    ],
)
def test_what_apt_would_not_do_well_is_not_done(monkeypatch: pytest.MonkeyPatch, simulated: Any, why: str) -> None:
    module = packages(monkeypatch, simulated)
    assert answer(module, **GIVEN)["msg"] == f"node1: {why}. Nothing was changed."
    assert len(module.commands.ran) == 2


def test_an_installation_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = {"text": "Setting up\nE: No space\n", "aside": "E: dpkg ended\n", "code": 100}
    module = packages(monkeypatch, INST.format("nvidia-open"), failed)
    assert answer(module, **GIVEN)["msg"] == (
        "node1: apt-get ended with 100 while it installed the driver. Once that is fixed, running this again goes on "
        "from there. It said:\nE: No space\nE: dpkg ended"
    )


LEAVE = "remove them first, with sudo apt-get remove slurm, or leave wipe_driver out"
UNCHANGED = "Nothing of it was changed."
PURGE = ("purge", "--yes", "--allow-change-held-packages", "--", "libnvidia-compute", "nvidia-open")
SHOWN = f"nvidia-open {NEW} install installed amd64\nlibnvidia-compute {NEW} install installed amd64\n"


def removal(monkeypatch: pytest.MonkeyPatch, folder: Path, shown: str, *answers: tuple[int, str, str]) -> Any:
    """nvidia_driver_removal on a node with these packages, where apt-get ends so: with a code, and what it says."""
    module: Any = among_files_of(folder, load("nvidia_driver_removal"), monkeypatch)
    monkeypatch.setattr(module, "show_packages", lambda: Answer(shown))
    module.asked, left = [], list(answers)

    def apt_get(*argv: str) -> CompletedProcess[str]:
        module.asked.append(argv)
        return CompletedProcess(argv, *left.pop(0))

    monkeypatch.setattr(module, "apt_get", apt_get)
    return module


def test_the_driver_goes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gone = {
        "changed": True,
        "gone": ["libnvidia-compute", "nvidia-open"],
        "diff": {"before": f"libnvidia-compute {NEW}\nnvidia-open {NEW}\n", "after": ""},
    }
    shown = f"{SHOWN}cuda-toolkit-13-0 13.0 install installed amd64\n"
    said = (0, "Purg nvidia-open [1]\n", "")
    module = removal(monkeypatch, tmp_path, shown, said, said, (0, "", ""))
    assert answer(module, node="node1", check=True) == gone
    assert module.asked == [("--simulate", *PURGE)]
    write(tmp_path / "sys/module/nvidia/version", "580")
    write(tmp_path / "usr/bin/nvidia-uninstall", "")
    assert answer(module, node="node1") == {
        **gone,
        "msg": f"node1: {remark(['/usr/bin/nvidia-uninstall'], loaded=True)}.",
    }
    assert module.asked[1:] == [("--simulate", *PURGE), PURGE]


def test_there_is_no_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write(tmp_path / "sys/module/nvidia/version", "580")
    nothing = {"changed": False, "gone": [], "diff": {"before": "", "after": ""}}
    assert answer(removal(monkeypatch, tmp_path, ""), node="node1") == nothing


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        (
            [(100, "", "E: held packages\n")],
            f"the driver stays: held packages. {UNCHANGED}",
        ),
        (
            [(0, "Purg slurm [1]\n", "")],
            f"the driver stays: apt would remove slurm too, which depend on the driver: {LEAVE}. {UNCHANGED}",
        ),
        (
            [(0, "", ""), (1, "E: one\n", "E: two\n")],
            "apt-get ended with 1. Once that is fixed, running this again goes on from there. It said:\nE: one\nE: two",
        ),
    ],
)
def test_a_driver_that_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answers: list[tuple[int, str, str]], why: str
) -> None:
    module = removal(monkeypatch, tmp_path, SHOWN, *answers)
    assert answer(module, node="node1")["msg"] == f"node1: {why}"
    assert len(module.asked) == len(answers)


def test_a_package_that_cannot_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    module: ModuleType = load("kept_debs")
    given: dict[str, Any] = {"node": "node1", "folder": "/x", "packages": ["a=1", "b=2"]}
    results = [{"changed": True, "bytes": 7, "missing": each} for each in ([], ["a=1", "b=2"])]
    monkeypatch.setattr(module, "keep", lambda params: results.pop(0) if params["packages"] == ["a=1", "b=2"] else {})
    assert answer(module, **given) == {"changed": True, "bytes": 7}
    assert answer(module, **given)["msg"] == (
        "node1: neither apt's cache nor a repository has a=1, b=2 any more, with which the node would go back. "
        "Its driver was not touched."
    )
