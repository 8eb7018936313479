"""Commands in code, docs and comments of playbooks are valid: each command is checked, or a reason against a check is
given.

Checked in the code: calls of the functions in muster.verdict.commands, and literal commands, which are allowed only in
YAML. Checked in the docs: blocks of commands, and commands in backticks.
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
from muster_cli.verbs import VerbSource
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
# Programs that Muster's commands run on nodes, with their packages. They cannot be checked on this machine.
ON_NODES = {
    "X": "only known at run time: a command from a site's own rules",
    "apt-get": "apt, part of Ubuntu and Debian",
    "cat": "coreutils, part of Ubuntu and Debian",
    "sh": "dash, part of Ubuntu and Debian",
    "chronyc": "chrony, installed by the baseline",
    "df": "coreutils, part of Ubuntu and Debian",
    "findmnt": "util-linux, part of Ubuntu and Debian",
    "getent": "libc-bin, part of Ubuntu and Debian",
    "grub-reboot": "grub2-common, only shown if GRUB's menu contains the kernel",
    "grep": "grep, part of Ubuntu and Debian",
    "id": "coreutils, part of Ubuntu and Debian",
    "ls": "coreutils, part of Ubuntu and Debian",
    "nc": "netcat-openbsd, part of Ubuntu servers",
    "nft": "nftables, part of Ubuntu and Debian servers",
    "printenv": "coreutils, part of Ubuntu and Debian",
    "prlimit": "util-linux, part of Ubuntu and Debian",
    "python3": "part of Ubuntu and Debian, required by Ansible",
    "timedatectl": "systemd, required for launches",
    "ip": "iproute2, part of Ubuntu and Debian servers",
    "journalctl": "systemd, required for launches",
    "ldconfig": "libc-bin, part of Ubuntu and Debian",
    "nvidia-smi": "nvidia-utils, part of the driver",
    "ping": "iputils-ping, part of Ubuntu and Debian servers",
    "ps": "procps, part of Ubuntu and Debian servers",
    "rdma": "iproute2, part of Ubuntu and Debian servers",
    "shutdown": "systemd-sysv, part of Ubuntu and Debian",
    "scontrol": "slurm-client, required for slurmd",
    "squeue": "slurm-client, required for slurmd",
    "ss": "iproute2, part of Ubuntu and Debian servers",
    "sysctl": "procps, part of Ubuntu and Debian servers",
    "systemctl": "systemd, required for launches",
    "tc": "iproute2, part of Ubuntu and Debian servers",
    "tracepath": "iputils-tracepath, part of Ubuntu servers",
}
# Variables of -e that no role declares, and the file that reads them.
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
SHARED = "../lab"  # written by share.yml, at the path in its README
UNCHECKED = {
    "PYTHONPATH=tests:tests/integration .venv-dev/bin/python tests/bench/status_seconds.py 5 2 8": (
        "it measures a sandbox of 8 nodes for minutes; only the existence of the file is checked"
    ),
    "PYTHONPATH=tests:tests/integration .venv-dev/bin/python tests/bench/health_growth.py 2 4 8 16": (
        "it measures a sandbox of 16 nodes for minutes; only the existence of the file is checked"
    ),
    "PYTHONPATH=tests:tests/integration .venv-dev/bin/python tests/bench/launch_overhead.py 10 40": (
        "it launches twenty times on a sandbox; only the existence of the file is checked"
    ),
    "PYTHONPATH=tests:tests/integration .venv-dev/bin/python tests/bench/observation.py 5 200": (
        "it launches ten times on a sandbox; only the existence of the file is checked"
    ),
    (
        "PYTHONPATH=tests:tests/integration:plugins/module_utils:plugins/plugin_utils"
        " .venv-dev/bin/python tests/bench/launch_seconds.py --without-pytorch 5 2 8"
    ): "it launches 24 times on a sandbox of eight nodes; only the existence of the file is checked",
}


def constants(call: ast.Call) -> str:
    """Return the command that a call builds, in plain form, with X for values known only at run time."""
    positional = [one.value if isinstance(one, ast.Constant) else shape_of(one) for one in call.args]
    named = {
        word.arg: word.value.value if isinstance(word.value, ast.Constant) else "X"
        for word in call.keywords
        if word.arg
    }  # except **given, whose names are only known at run time
    assert isinstance(call.func, ast.Name)
    written = getattr(commands, call.func.id)(*positional, **named)
    if isinstance(written, commands.OnNode):
        return written.filled({**dict.fromkeys(written.places, "X"), written.at: "X"})
    assert isinstance(written, str)
    return written


def shape_of(value: ast.expr) -> str:
    """Return the text of an f-string with X for its fields."""
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
    """Yield the commands in texts and comments of playbooks and roles."""
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
    """Return all options of all roles."""
    return frozenset(
        name
        for path in (ROOT / "roles").glob("*/meta/argument_specs.yml")
        for spec in yaml.safe_load(path.read_text())["argument_specs"].values()
        for name in spec.get("options", {})
    )


@cache
def known_tags() -> frozenset[str]:
    """Return the tags that Ansible finds in site.yml."""
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
    for book in options.args if options.args != ["..."] else ():  # playbooks of the run itself
        assert (ROOT / book).is_file(), f"the playbook {book} does not exist"
    assert not typed or options.inventory, "no inventory is given"
    for inventory in set(options.inventory or ()) - {SHARED}:
        assert (ROOT / inventory).is_dir(), f"the inventory {inventory} does not exist"
    for tag in ",".join(options.tags).split(",") if options.tags and options.tags != ["all"] else ():
        assert tag in known_tags(), f"the tag {tag} does not exist"
    for given in options.extra_vars:
        if given.startswith("@"):
            continue  # a file of the reader; examples/job.yml has a separate test
        pairs = re.split(r"\s+(?=\w+=)", given)  # a value may be a sentence
        names = yaml.safe_load(given) if given.startswith("{") else dict(pair.split("=", 1) for pair in pairs)
        for name in names:
            books = [OF_PLAYBOOKS[name]] if name in OF_PLAYBOOKS else [one for one in options.args if one != "..."]
            read = any(re.search(rf"\b{name}\b", (ROOT / book).read_text()) for book in books)
            assert read or name in declared(), f"nothing reads {name}"


def check_ad_hoc(words: list[str], *, typed: bool) -> None:
    cli = AdHocCLI(["ansible", *words])
    cli.init_parser()
    options = cli.parser.parse_args(words)
    assert not typed or options.inventory, "no inventory is given"
    if options.module_name == "ansible.builtin.command":
        assert options.module_args.split()[0] in ON_NODES
    elif options.module_name == "ansible.builtin.file":
        given = dict(pair.split("=", 1) for pair in shlex.split(options.module_args))
        assert given.keys() <= {"path", "owner", "state"}
    elif options.module_name != "ansible.builtin.ping":
        text = (ROOT / f"library/{options.module_name}.py").read_text()
        for name in dict(pair.split("=", 1) for pair in shlex.split(options.module_args)):
            assert re.search(rf"^  {name}:|\brole_options\.{name}\b", text, re.MULTILINE), (
                f"{options.module_name} has no option {name}"
            )


def check_vault(words: list[str]) -> None:
    """Check that ansible-vault prompts for the secret. It accepts --name only with secrets in its arguments."""
    cli = VaultCLI(["ansible-vault", *words])
    cli.init_parser()
    options = cli.parser.parse_args(words)
    assert options.encrypt_string_prompt, "the command does not prompt for the secret"


def check_muster(words: list[str]) -> None:
    """Build the command of ansible-playbook without running it, for a cluster that this checkout has."""
    at = words.index("--") if "--" in words else len(words)
    named = {"lab": "sandbox", SHARED: "sandbox"}
    words = [named.get(word, word) for word in words]
    if words[0] == "why" and words[-1].startswith("/"):
        return  # logs of the reader
    shown = [*words[:at], *([] if words[0] in NO_PLAYBOOK else ["--show"]), *words[at:]]
    done = CliRunner(env={"MUSTER_CLUSTER": "sandbox"}).invoke(Verbs(VerbSource(ROOT)), shown)
    assert done.exit_code == 0, done.output


def check_pytest(words: list[str]) -> None:
    """Check paths and names of tests or case files."""
    *paths, name = words if "-k" in words else [*words, ""]
    for path in paths:
        assert path == "-k" or (ROOT / path).exists(), f"{path} does not exist"
    files = [path for path in (ROOT / "tests").rglob("*.*") if path.suffix in (".py", ".yml")]
    of_a_file = any(name in path.name for path in files)
    tests = (re.findall(r"def (test_\w+)", path.read_text()) for path in files if path.suffix == ".py")
    assert of_a_file or any(name in test for found in tests for test in found), f"no test has the name {name}"


def check_script(words: list[str]) -> None:
    path = ROOT / words[0]
    assert path.is_file(), f"{words[0]} does not exist"
    text = path.read_text() + " ".join(read_stages() if words[0] == "script/test" else ())
    if "-k" in words:
        check_pytest(words[(rest := words.index("-k")) :])
        words = words[:rest]
    for word in words[1 : words.index("--") if "--" in words else None]:
        known = word.isdigit() or (word.startswith("tests/") and (ROOT / word).exists())
        assert known or re.search(rf"(?<![\w-]){re.escape(word)}(?!\w)", text), f"{words[0]} has no argument {word}"
    if "--" in words:
        # The demo passes these arguments to ansible-playbook after its own inventory.
        check_playbook(["site.yml", *words[words.index("--") + 1 :]], typed=False)


def check(shown: Shown, *, typed: bool) -> None:
    """Check one command. typed: the command is shown in its final form, without completion by Terminal."""
    words = words_of(shown.command)
    if shown.command in UNCHECKED:
        assert all((ROOT / word).exists() for word in words if "/" in word and "=" not in word)
        return
    program, *arguments = words
    if typed and not program.startswith(("script/", "muster")):
        assert re.match(r"\.venv(-dev)?/bin/", program), "the path of the environment is missing"
    name = re.sub(r"^\.venv(-dev)?/bin/", "", program)
    if name == "ansible-playbook":
        check_playbook(arguments, typed=typed)
    elif name == "muster":
        check_muster(arguments)
    elif name == "ansible":
        check_ad_hoc(arguments, typed=typed)
    elif name == "pip":
        assert arguments == ["install", "ansible-runner"]
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
def test_commands_in_code_are_valid(shown: Shown) -> None:
    check(shown, typed=shown.command.startswith("."))


@pytest.mark.parametrize("shown", sorted(set(in_pages())), ids=" ".join)
def test_commands_in_docs_are_valid(shown: Shown) -> None:
    check(shown, typed=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_docs_show_complete_commands(page: Path) -> None:
    found = [found[0] for found in commands.COMMAND.finditer(page.read_text())]
    assert not found, ".venv/bin/ and -i are missing in these commands"


def test_commands_are_built_only_by_the_command_functions() -> None:
    """The tests above do not check literal commands outside of documentation: no command function built them."""
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


def test_commands_excused_from_checks_still_appear() -> None:
    shown = {one.command for one in in_pages()}
    assert UNCHECKED.keys() <= shown
    assert all(name in text for name, book in OF_PLAYBOOKS.items() for text in [(ROOT / book).read_text()])
    used = {words_of(one.command)[-1].split()[0] for one in calls() if "ansible.builtin.command" in one.command}
    # The rollback to an older driver is a shell line with the node's previous packages.
    assert used | {"sh"} == ON_NODES.keys()


def test_every_command_in_the_docs_is_run_by_a_test_or_excused() -> None:
    """tests/slow/test_commands_run.py runs these commands. Any file that a reason names must exist."""
    run = [name for group in table()["run"].values() for name in group]
    not_run = [name for names in table()["not_run"].values() for name in names]
    assert len(run) + len(not_run) == len({*run, *not_run}), "duplicate entry"
    assert {*run, *not_run} == of_readers().keys(), "tests/shown_commands.yml differs from the commands of the pages"
    named = re.findall(r"[\w/]*\btest_\w+\.py", " ".join(table()["not_run"]))
    assert all((ROOT / "tests/integration" / Path(path).name).is_file() for path in named)
