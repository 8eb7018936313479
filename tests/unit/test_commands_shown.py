"""Every command that code, docs and comments of playbooks show can be typed: each is checked, or it is said why not.

Of the code: each call of the functions in muster.verdict.commands, and each literal command beside them, which only
YAML may hold. Of the docs: blocks of commands, and commands in backticks.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from ansible.cli.adhoc import AdHocCLI
from ansible.cli.playbook import PlaybookCLI
from ansible.cli.vault import VaultCLI
from click.testing import CliRunner

from muster.verdict import commands
from muster_cli.command import NO_PLAYBOOK, Verbs
from muster_cli.verbs import Project
from runner.stage import read_stages
from shown_commands import PAGES, PLACEHOLDERS, Shown, in_pages, of_readers, table

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
CODE = sorted(path for room in ("plugins", "library", "script") for path in (ROOT / room).rglob("*.py"))
YAML = sorted(
    path
    for place in ("site.yml", "playbooks/*.yml", "examples/*.yml", "roles/*/tasks/*.yml")
    for path in ROOT.glob(place)
)
# Programs that our commands run on nodes, and what brings them there: not this machine's to check.
ON_NODES = {
    "X": "what only a run knows: a question of a site's own rules, which names the program",
    "apt-get": "apt, of every Ubuntu and Debian",
    "cat": "coreutils, of every Ubuntu and Debian",
    "sh": "dash, of every Ubuntu and Debian",
    "chronyc": "chrony, which the baseline installs",
    "df": "coreutils, of every Ubuntu and Debian",
    "findmnt": "util-linux, of every Ubuntu and Debian",
    "getent": "libc-bin, of every Ubuntu and Debian",
    "grub-reboot": "grub2-common, shown where GRUB's menu has the kernel",
    "grep": "every Ubuntu and Debian",
    "id": "coreutils, of every Ubuntu and Debian",
    "ip": "iproute2, of every Ubuntu and Debian server",
    "journalctl": "systemd, without which nothing is launched",
    "ldconfig": "libc-bin, of every Ubuntu and Debian",
    "nvidia-smi": "nvidia-utils, which the driver brings: without it no rank has a GPU",
    "ping": "iputils-ping, of every Ubuntu and Debian server",
    "ps": "procps, of every Ubuntu and Debian server",
    "rdma": "iproute2, of every Ubuntu and Debian server",
    "shutdown": "systemd-sysv, of every Ubuntu and Debian",
    "ss": "iproute2, of every Ubuntu and Debian server",
    "sysctl": "procps, of every Ubuntu and Debian server",
    "systemctl": "systemd, without which nothing is launched",
    "tc": "iproute2, of every Ubuntu and Debian server",
    "tracepath": "iputils-tracepath, of Ubuntu servers",
}
# Variables of -e that no role declares, and who reads them.
OF_PLAYBOOKS = {
    "accept": "playbooks/drift.yml",
    "json": "playbooks/drift.yml",
    "repair": "playbooks/drift.yml",
    "node": "playbooks/onboard.yml",
    "address": "playbooks/onboard.yml",
    "host_key": "playbooks/onboard.yml",
    "share_to": "playbooks/share.yml",
    **dict.fromkeys(("import_to", "nodes_file", "ssh_config"), "playbooks/import.yml"),
    **dict.fromkeys(("watch", "watch_seconds", "status_json", "status_gate", "status_wait"), "playbooks/status.yml"),
    "full": "roles/cluster/defaults/main.yml",
    "report_run": "playbooks/report.yml",
    "trust_confirmed": "playbooks/trust.yml",
    "trust_copy_key": "playbooks/trust.yml",
    "trust_replace": "playbooks/trust.yml",
    **dict.fromkeys(
        ("torch_version", "driver", "kernel", "rollback", "canary", "batch", "wait"), "playbooks/upgrade.yml"
    ),
}
SHARED = "../lab"  # what share.yml has written, in the place that its README names
UNCHECKED = {
    "PYTHONPATH=tests/integration .venv-dev/bin/python tests/bench/status_seconds.py 5 2 8": (
        "it measures a sandbox of 8 nodes for minutes; that the file is there is all that is checked"
    ),
    "PYTHONPATH=tests/integration .venv-dev/bin/python tests/bench/health_growth.py 2 4 8 16": (
        "it measures a sandbox of 16 nodes for minutes; that the file is there is all that is checked"
    ),
    "PYTHONPATH=tests/integration .venv-dev/bin/python tests/bench/launch_overhead.py 10 40": (
        "it launches twenty times on a sandbox; that the file is there is all that is checked"
    ),
    "PYTHONPATH=tests/integration .venv-dev/bin/python tests/bench/observation.py 5 200": (
        "it launches ten times on a sandbox; that the file is there is all that is checked"
    ),
    (
        "PYTHONPATH=tests/integration:plugins/module_utils:plugins/plugin_utils"
        " .venv-dev/bin/python tests/bench/launch_seconds.py --without-pytorch 5 2 8"
    ): "it launches twenty-four times on a sandbox of eight nodes; that the file is there is all that is checked",
}


def constants(call: ast.Call) -> str:
    """The plain form of a call's command; X stands for what only a run knows."""
    positional = [one.value if isinstance(one, ast.Constant) else shape_of(one) for one in call.args]
    named = {
        word.arg: word.value.value if isinstance(word.value, ast.Constant) else "X"
        for word in call.keywords
        if word.arg
    }  # but for **given, of which only a run knows the names
    assert isinstance(call.func, ast.Name)
    written = getattr(commands, call.func.id)(*positional, **named)
    if isinstance(written, commands.OnNode):
        return written.filled({**dict.fromkeys(written.places, "X"), written.at: "X"})
    assert isinstance(written, str)
    return written


def shape_of(value: ast.expr) -> str:
    """The text of an f-string with X in its places."""
    if isinstance(value, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in value.values)
    return "X"


@cache
def calls() -> tuple[Shown, ...]:
    return tuple(
        one for path in CODE if "verdict.commands" in (text := path.read_text()) for one in calls_of(path, text)
    )


def calls_of(path: Path, text: str) -> Iterator[Shown]:
    tree = ast.parse(text)
    imported = {
        name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("verdict.commands")
        for name in node.names
    } & {"playbook", "again", "on_node", "OnNode", "ping", "tool"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in imported:
            yield Shown(f"{path.relative_to(ROOT)}:{node.lineno}", constants(node))


def in_yaml() -> Iterator[Shown]:
    """Commands in the texts and in the comments of playbooks and roles."""
    for path in YAML:
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if found := re.search(r"(?:(?<=\s)\.venv/bin/)?(?<![\w/.-])ansible-playbook \S+\.yml.*", line):
                yield Shown(f"{path.relative_to(ROOT)}:{number}", found[0])


def words_of(command: str) -> list[str]:
    for placeholder, value in PLACEHOLDERS.items():
        command = command.replace(placeholder, value)
    return shlex.split(command, comments=True)


@cache
def declared() -> frozenset[str]:
    """Every option of every role."""
    return frozenset(
        name
        for path in (ROOT / "roles").glob("*/meta/argument_specs.yml")
        for spec in yaml.safe_load(path.read_text())["argument_specs"].values()
        for name in spec.get("options", {})
    )


@cache
def known_tags() -> frozenset[str]:
    """The tags that Ansible itself finds in site.yml."""
    done = subprocess.run(
        [str(BIN / "ansible-playbook"), "site.yml", "-i", "inventory/sandbox", "--list-tags"],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        capture_output=True,
        text=True,
        check=True,
    )
    return frozenset(tag.strip() for tags in re.findall(r"TAGS: \[([^]]*)\]", done.stdout) for tag in tags.split(","))


def check_playbook(words: list[str], *, typed: bool) -> None:
    cli = PlaybookCLI(["ansible-playbook", *words])
    cli.init_parser()
    options = cli.parser.parse_args(words)
    for book in options.args if options.args != ["..."] else ():  # those of the run itself
        assert (ROOT / book).is_file(), f"there is no playbook {book}"
    assert not typed or options.inventory, "no inventory is named"
    for inventory in set(options.inventory or ()) - {SHARED}:
        assert (ROOT / inventory).is_dir(), f"there is no inventory {inventory}"
    for tag in ",".join(options.tags).split(",") if options.tags and options.tags != ["all"] else ():
        assert tag in known_tags(), f"there is no tag {tag}"
    for given in options.extra_vars:
        if given.startswith("@"):
            continue  # a file of the reader's own; examples/job.yml has a test of itself
        pairs = re.split(r"\s+(?=\w+=)", given)  # the value of one may be a sentence
        names = yaml.safe_load(given) if given.startswith("{") else dict(pair.split("=", 1) for pair in pairs)
        for name in names:
            books = [OF_PLAYBOOKS[name]] if name in OF_PLAYBOOKS else [one for one in options.args if one != "..."]
            read = any(re.search(rf"\b{name}\b", (ROOT / book).read_text()) for book in books)
            assert read or name in declared(), f"nothing reads {name}"


def check_ad_hoc(words: list[str], *, typed: bool) -> None:
    cli = AdHocCLI(["ansible", *words])
    cli.init_parser()
    options = cli.parser.parse_args(words)
    assert not typed or options.inventory, "no inventory is named"
    if options.module_name == "ansible.builtin.command":
        assert options.module_args.split()[0] in ON_NODES
    elif options.module_name != "ansible.builtin.ping":
        text = (ROOT / f"library/{options.module_name}.py").read_text()
        for name in dict(pair.split("=", 1) for pair in shlex.split(options.module_args)):
            assert re.search(rf"^  {name}:", text, re.MULTILINE), f"{options.module_name} has no option {name}"


def check_vault(words: list[str]) -> None:
    """It takes --name for strings among its arguments alone; a secret does not belong there, and is asked for."""
    cli = VaultCLI(["ansible-vault", *words])
    cli.init_parser()
    options = cli.parser.parse_args(words)
    assert options.encrypt_string_prompt, "nothing asks for the secret"


def check_muster(words: list[str]) -> None:
    """Build the command of ansible-playbook without running it, for a cluster that this checkout has."""
    before, dashes, rest = " ".join(words).partition(" -- ")
    words = [*shlex.split(before), *([] if words[0] in NO_PLAYBOOK else ["--show"]), *shlex.split(dashes + rest)]
    done = CliRunner(env={"MUSTER_CLUSTER": "sandbox"}).invoke(Verbs(Project(ROOT)), words)
    assert done.exit_code == 0, done.output


def check_pytest(words: list[str]) -> None:
    """Paths and names of tests or of their case files."""
    *paths, name = words if "-k" in words else [*words, ""]
    for path in paths:
        assert path == "-k" or (ROOT / path).exists(), f"there is no {path}"
    files = [path for path in (ROOT / "tests").rglob("*.*") if path.suffix in (".py", ".yml")]
    of_a_file = any(name in path.name for path in files)
    tests = (re.findall(r"def (test_\w+)", path.read_text()) for path in files if path.suffix == ".py")
    assert of_a_file or any(name in test for found in tests for test in found), f"no test is called {name}"


def check_script(words: list[str]) -> None:
    path = ROOT / words[0]
    assert path.is_file(), f"there is no {words[0]}"
    text = path.read_text() + " ".join(read_stages() if words[0] == "script/test" else ())
    if "-k" in words:
        check_pytest(words[(rest := words.index("-k")) :])
        words = words[:rest]
    for word in words[1 : words.index("--") if "--" in words else None]:
        known = word.isdigit() or (word.startswith("tests/") and (ROOT / word).exists())
        assert known or re.search(rf"(?<![\w-]){re.escape(word)}(?!\w)", text), f"{words[0]} knows no {word}"
    if "--" in words:
        # The demo hands these on to ansible-playbook, behind its own inventory.
        check_playbook(["site.yml", *words[words.index("--") + 1 :]], typed=False)


def check(shown: Shown, *, typed: bool) -> None:
    """typed: the command is shown as it is, and not still to be typed by the one function that does."""
    words = words_of(shown.command)
    if shown.command in UNCHECKED:
        assert all((ROOT / word).exists() for word in words if "/" in word and "=" not in word)
        return
    program, *arguments = words
    if typed and not program.startswith(("script/", "muster")):
        assert re.match(r"\.venv(-dev)?/bin/", program), "it names no environment"
    name = re.sub(r"^\.venv(-dev)?/bin/", "", program)
    if name == "ansible-playbook":
        check_playbook(arguments, typed=typed)
    elif name == "muster":
        check_muster(arguments)
    elif name == "ansible":
        check_ad_hoc(arguments, typed=typed)
    elif name == "ansible-vault":
        check_vault(arguments)
    elif arguments[:2] == ["-m", "pytest"]:
        check_pytest(arguments[2:])
    elif name == "python":
        check_script(arguments)
    else:
        check_script(words)
        assert os.access(ROOT / words[0], os.X_OK)


@pytest.mark.parametrize("shown", sorted({*calls(), *in_yaml()}), ids=" ".join)
def test_a_command_of_the_code_is_one(shown: Shown) -> None:
    check(shown, typed=shown.command.startswith("."))


@pytest.mark.parametrize("shown", sorted(set(in_pages())), ids=" ".join)
def test_a_command_of_the_docs_is_one(shown: Shown) -> None:
    check(shown, typed=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_docs_show_commands_as_they_are_typed(page: Path) -> None:
    found = [found[0] for found in commands.COMMAND.finditer(page.read_text())]
    assert not found, "these lack .venv/bin/ and -i, as people would read them on the screen"


def test_python_builds_its_commands_in_one_place() -> None:
    """A literal command in a text that is no documentation was not built, and is not found by the tests above."""
    found = []
    texts = {path: path.read_text() for path in CODE}
    for path in (path for path, text in texts.items() if re.search(r"ansible[- ]|playbooks/|script/", text)):
        tree = ast.parse(texts[path])
        documentation = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        documentation |= {
            id(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("DOCUMENTATION", "EXAMPLES", "RETURN")
        }
        found += [
            f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation
            if re.search(
                r"ansible-playbook (site|playbooks)|[Rr]un playbooks/|playbooks/\w+\.yml -|ansible \S* ?-m ", node.value
            )
            or commands.COMMAND.search(node.value)
        ]
    assert not found, "\n".join(found)


def test_what_is_not_checked_is_still_shown() -> None:
    shown = {one.command for one in in_pages()}
    assert UNCHECKED.keys() <= shown
    assert all(name in text for name, book in OF_PLAYBOOKS.items() for text in [(ROOT / book).read_text()])
    used = {words_of(one.command)[-1].split()[0] for one in calls() if "ansible.builtin.command" in one.command}
    # The way back to an older driver is one line of a shell, made of the packages that the node had.
    assert used | {"sh"} == ON_NODES.keys()


def test_each_command_of_a_readers_page_is_run_or_it_is_said_why_not() -> None:
    """tests/slow/test_commands_run.py runs them; a reason that names a file names one that is there."""
    run = [name for group in table()["run"].values() for name in group]
    not_run = [name for names in table()["not_run"].values() for name in names]
    assert len(run) + len(not_run) == len({*run, *not_run}), "one is there twice"
    assert {*run, *not_run} == of_readers().keys(), "tests/shown_commands.yml does not have the commands of the pages"
    named = re.findall(r"[\w/]*\btest_\w+\.py", " ".join(table()["not_run"]))
    assert all((ROOT / "tests/integration" / Path(path).name).is_file() for path in named)
