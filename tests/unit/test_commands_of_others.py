"""Every command of other programs that the docs show: what it names is there, and the list says why it is not run.

Commands of Muster's own are in test_commands_shown.py; between the two no line with a prompt is left out.
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
# Each program, and why no test runs it as it stands.
NOT_RUN = {
    "all_reduce_perf": "it takes GPUs and their nccl-tests; tests/gpu runs it where there are some",
    "apt-cache": "what it finds depends on a lab's own packages, on a machine with the internet",
    "apt-get": "it downloads gigabytes of drivers, on a machine with the internet",
    "cat": "it shows a file that the reader has just written",
    "cd": "a shell's own: what follows is checked in that folder",
    "dkms": "it signs for the firmware of a real machine",
    "dpkg-scanpackages": "it lists what the line before has downloaded",
    "echo": "it stands for what the reader does then",
    "editor": "whichever the reader has",
    "git": "the reader's own repository",
    "grep": "it reads what a run has left; its file and its words are checked",
    "install": "it writes into the reader's own home",
    "journalctl": "it reads the journal of a node, which tests of the claims read as well",
    "ls": "it lists what a launch has left on this machine",
    "mkdir": "it makes folders for the lines after it",
    "mokutil": "it talks to the firmware of a real machine",
    "nvidia-uninstall": "it takes a driver away that only a machine with a runfile's driver has",
    "packages": "a shell's variable: names of the reader's plan",
    "pip": "it fetches wheels of gigabytes from the reader's own index",
    "podman": "it saves an image of the reader's own registry; tests/integration saves and launches one of its own",
    "printf": "it only hands on its text",
    "python": "the user's own training program; tests/integration runs it by a launch",
    "python3": "a program for nodes, by hand: its module and its verb are checked",
    "sha256sum": "it reads what the lines before have downloaded",
    "sort": "it only sorts what is handed to it",
    "systemctl": "it restarts a real machine",
    "tail": "it reads what a run has left; the file is checked",
    "torchrun": "tests/integration runs it by a launch; its program and the options are checked",
    "update-secureboot-policy": "it talks to the firmware of a real machine",
}
# Files that the text around has the reader write.
OF_THE_READER = {"inventory/lab/vision.txt", "inventory/lab/vision.lock.txt", "inventory/lab/pytorch.lock.txt"}
BESIDE_RUNS = {record.NAME, "acceptance.json", "inspect.json", "status.json"}


def parts_of(command: str) -> Iterator[list[str]]:
    """The words of each program that a line of a shell starts."""
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
    """The options of a Python program, or of one of several files in a folder."""
    place = ROOT / path
    text = "".join(file.read_text() for file in ([place] if place.is_file() else place.rglob("*.py")))
    for option in [word.partition("=")[0] for word in words if word.startswith("--")]:
        assert re.search(rf"[\"']{option}[\"']", text), f"{path} has no {option}"


def check_words(words: list[str]) -> None:
    program = words[0].partition("=")[0].rpartition("/")[2]
    assert program in NOT_RUN, f"nothing says why {program} is not run"
    for word in words[1:]:
        if IN_THE_TREE.match(word) and word not in OF_THE_READER:
            assert (ROOT / word).exists(), f"there is no {word}"
        if word.startswith("artifacts/"):
            name = word.split("/")[3] if "/latest/" in word else word.rpartition("/")[2]
            assert name in OWN | BESIDE_RUNS | {"fetched"}, f"no run leaves {name}"
        if found := re.fullmatch(r'"(status|launch)": "(\w+)"', word):
            assert found[2] in {"status": WORDS, "launch": run_verdict.ORDER}[found[1]], f"no run says {word}"
    if program in ("python", "torchrun"):
        place = next(place for place, word in enumerate(words) if place and IN_THE_TREE.match(word))
        check_program(words[place], words[place + 1 :])
    if program == "python3":
        module, verb = words[words.index("-m") + 1 :]
        text = (ROOT / f"plugins/module_utils/{module.replace('.', '/')}.py").read_text()
        assert f'"{verb}"' in text, f"{module} has no verb {verb}"


@pytest.mark.parametrize("shown", sorted(set(of_others())), ids=" ".join)
def test_what_a_command_of_another_program_names_is_there(shown: Shown) -> None:
    parts = list(parts_of(shown.command))
    assert parts
    for words in parts:
        check_words(words)


def test_what_is_not_run_is_still_shown() -> None:
    programs = {words[0].partition("=")[0].rpartition("/")[2] for one in of_others() for words in parts_of(one.command)}
    assert programs == NOT_RUN.keys()
    assert all(any(name in one.command for one in of_others()) for name in OF_THE_READER)
