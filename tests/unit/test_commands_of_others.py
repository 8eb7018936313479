"""Commands of other programs in the docs: the files and options they name exist, and a list gives the reason why no
test runs them.

Muster's own commands are checked in test_commands_shown.py. Together the two tests cover all lines with a prompt.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from muster.report import run_verdict
from muster.report.pruning import OWN
from muster.report.words import WORDS
from muster_controller.artifacts import record
from shown_commands import PLACEHOLDERS, Shown, of_others

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
IN_THE_TREE = re.compile(
    r"(docs|examples|inventory|library|molecule|playbooks|plugins|requirements|roles|script|tests)/"
)
# Programs, with the reason why no test runs the shown command.
NOT_RUN = {
    "ANSIBLE_CONFIG": "environment variable of a playbook in a folder of the reader",
    "all_reduce_perf": "it needs GPUs and nccl-tests; tests/gpu runs it on machines with GPUs",
    "apt-cache": "its output depends on the packages of a lab, on a machine with internet access",
    "apt-get": "it downloads gigabytes of drivers, on a machine with internet access",
    "cat": "it shows a file that the reader has written",
    "cd": "shell builtin: the following commands are checked in that folder",
    "cp": "it copies into folders of the reader",
    "dkms": "it signs modules for the firmware of a real machine",
    "dpkg-scanpackages": "it lists the packages that the previous line downloaded",
    "echo": "it represents an action of the reader",
    "editor": "the reader's editor",
    "eval": "it changes the reader's shell; tests/unit/command reads the completion script",
    "export": "it changes the reader's shell",
    "git": "the reader's own repository",
    "grep": "it reads artifacts of a run; the file and the words are checked",
    "hostname": "it prints the addresses of the reader's node",
    "https_proxy": "environment variable of script/setup",
    "install": "it writes into the reader's home folder",
    "journalctl": "it reads the journal of a node; tests of claims read it as well",
    "kubectl": "there is no Kubernetes cluster",
    "ls": "it lists artifacts of a launch on this machine",
    "mkdir": "it creates folders for the following lines",
    "mokutil": "it accesses the firmware of a real machine",
    "muster-node-check": "a program on nodes; tests/integration/test_watch.py runs it",
    "nvidia-uninstall": "it removes a driver that was installed by a runfile",
    "packages": "shell variable with names from the reader's plan",
    "netplan": "it configures the network of a real machine",
    "ping": "it sends packets to the reader's node",
    "pip": "it downloads gigabytes of wheels from the reader's index",
    "podman": "it saves an image from the reader's registry; tests/integration saves and launches another image",
    "printf": "it only prints its text",
    "python": "the user's training program; tests/integration launches such programs",
    "python3": "a program for nodes: its module and its verb are checked",
    "rdma": "it shows the adapters of a real machine",
    "salloc": "tests/integration/test_slurm.py launches in an allocation",
    "sbatch": "tests/integration/test_slurm.py submits a job",
    "sha256sum": "it reads files that the previous lines downloaded",
    "scontrol": "tests/integration/test_slurm.py drains and resumes nodes",
    "sinfo": "tests/integration/test_slurm.py shows the nodes",
    "sort": "it only sorts its input",
    "ssh-keygen": "it prints the fingerprint of the reader's node",
    "ssh": "it logs in to the reader's node",
    "systemctl": "it restarts a real machine",
    "tail": "it reads artifacts of a run; the file is checked",
    "torchrun": "tests/integration launches it; its program and the options are checked",
    "uv": "it installs into the reader's home; tests/unit/command builds and runs the package",
    "update-secureboot-policy": "it accesses the firmware of a real machine",
    "wget": "it downloads a data set from the internet",
}
# Files that the reader writes according to the docs.
OF_THE_READER = {"inventory/lab/vision.txt", "inventory/lab/vision.lock.txt", "inventory/lab/pytorch.lock.txt"}
BESIDE_RUNS = {record.NAME, "acceptance.json", "inspect.json", "status.json"}


def parts_of(command: str) -> Iterator[list[str]]:
    """Return the words of each program in a shell line."""
    for placeholder, value in PLACEHOLDERS.items():
        command = command.replace(placeholder, value)
    if "$(" in command:
        command = command.replace("$(", " ; ").replace(")", " ; ")
    lexer = shlex.shlex(
        re.sub(r"<([^>]*)>", lambda found: found[1].replace(" ", "_"), command), posix=True, punctuation_chars="|&;"
    )
    lexer.whitespace_split = True
    words: list[str] = []
    for word in (*lexer, ";"):
        if set(word) <= set("|&;"):
            if words:
                yield words[1:] if words[0] == "sudo" else words
            words = []
        else:
            words.append(word)


def check_program(path: str, words: list[str]) -> None:
    """Check the options of a Python program, or of one of several files in a folder."""
    place = ROOT / path
    text = "".join(file.read_text() for file in ([place] if place.is_file() else place.rglob("*.py")))
    for option in [word.partition("=")[0] for word in words if word.startswith("--")]:
        assert re.search(rf"[\"']{option}[\"']", text), f"{path} has no {option}"


def check_words(words: list[str]) -> None:
    program = words[0].partition("=")[0].rpartition("/")[2]
    assert program in NOT_RUN, f"no reason why {program} is not run"
    for word in words[1:]:
        if IN_THE_TREE.match(word) and word not in OF_THE_READER:
            assert (ROOT / word).exists(), f"{word} does not exist"
        if word.startswith("artifacts/"):
            name = word.split("/")[3] if "/latest/" in word else word.rpartition("/")[2]
            assert name in OWN | BESIDE_RUNS | {"fetched"}, f"no run writes {name}"
        if found := re.fullmatch(r'"(status|launch)": "(\w+)"', word):
            assert found[2] in {"status": WORDS, "launch": run_verdict.ORDER}[found[1]], f"no run contains {word}"
    if program in ("python", "torchrun"):
        place = next(place for place, word in enumerate(words) if place and IN_THE_TREE.match(word))
        check_program(words[place], words[place + 1 :])
    if program == "python3":
        module, verb = words[words.index("-m") + 1 :]
        text = (ROOT / f"plugins/module_utils/{module.replace('.', '/')}.py").read_text()
        assert f'"{verb}"' in text, f"{module} has no verb {verb}"


@pytest.mark.parametrize("shown", sorted(set(of_others())), ids=" ".join)
def test_commands_of_other_programs_refer_to_existing_files_and_options(shown: Shown) -> None:
    parts = list(parts_of(shown.command))
    assert parts
    for words in parts:
        check_words(words)


def test_programs_excused_from_tests_still_appear_in_the_docs() -> None:
    programs = {words[0].partition("=")[0].rpartition("/")[2] for one in of_others() for words in parts_of(one.command)}
    assert programs == NOT_RUN.keys()
    assert all(any(name in one.command for one in of_others()) for name in OF_THE_READER)
