"""Values in commands: a name or path from a node, a user or a log stays one shell word; otherwise no command is
printed."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from ansible.parsing.dataloader import DataLoader

from muster.verdict.commands import OnNode, again, on_node, ping, playbook, shell

ROOT = Path(__file__).parents[3]
CODE = sorted((ROOT / "plugins").rglob("*.py"))
QUOTED = [
    "a b",
    "n1';touch x;'",
    'n1";touch x;"',
    "$(touch x)",
    "`touch x`",
    "a;touch x",
    "a&&touch x",
    "a|touch x",
    "a>x",
    "*",
    "~root",
    "{path}",
    "{what}",
    "a\\",
    "#a",
    "!1",
    "größe",
    "a" * 1000,
]
REFUSED = [
    "",
    "-oProxyCommand=touch x",
    "--",
    "{{ lookup('pipe', 'touch x') }}",
    "{% if 1 %}x{% endif %}",
    "a{#b",
    "a\nb",
    "a\tb",
    "a\0b",
    "a\x1b[2Jb",
    "a\x7f",
    "a\u202eb",
    "a\u2028b",
    "a" * 1001,
]


@pytest.mark.parametrize("value", QUOTED)
def test_value_in_a_command_stays_one_word(value: str, tmp_path: Path) -> None:
    assert shlex.split(shell("findmnt {path} --of={path}", path=value)) == ["findmnt", value, f"--of={value}"]
    printed = shell("printf '%s\\0' {path} --of={path}", path=value)
    done = subprocess.run(["/bin/sh", "-c", printed], cwd=tmp_path, capture_output=True, check=True, text=True)
    assert done.stdout == f"{value}\0--of={value}\0"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", QUOTED)
def test_nested_command_is_quoted_twice(value: str) -> None:
    words = shlex.split(on_node("node1", "stat {path}", become=True, path=value))
    assert words[:-1] == ["ansible", "node1", "--become", "-m", "ansible.builtin.command", "-a"]
    assert shlex.split(words[-1]) == ["stat", value]
    filled = OnNode("stat {path}").filled({"node": "node1", "path": value})
    assert shlex.split(shlex.split(filled)[-1]) == ["stat", value]


@pytest.mark.parametrize("value", REFUSED)
def test_no_command_is_printed_for_an_unsafe_value(value: str) -> None:
    assert shell("findmnt {path}", path=value) == ""
    assert on_node("node1", "findmnt {path}", path=value) == ""
    assert playbook("site.yml", name=value) == again(name=value) == ""
    assert shell("kill {pids}", pids=["1", value]) == ""


@pytest.mark.parametrize(
    "node", [*REFUSED, "a b", "@file", "!node1", "~.*", "node1;touch x", "$(id)", "größe", "node1,node2"]
)
def test_no_command_is_printed_for_an_invalid_node_name(node: str) -> None:
    assert on_node(node, "df -h") == ping(node) == OnNode().filled({"node": node}) == ""


def test_values_are_substituted_only_once() -> None:
    assert shell("a {first} {second}", first="{second}", second="x") == "a '{second}' x"
    assert shell("kill {pids}", pids=[1, 2]) == "kill 1 2"
    assert shell("kill {pids}", pids=[]) == ""
    assert shell("podman ps --format {other}") == "podman ps --format {other}"


@pytest.mark.parametrize("value", ["a b", "a other=b", "a'b", 'a"b', "a\\b"])
def test_extra_variable_with_spaces_stays_one_variable(value: str) -> None:
    """Ansible splits the value of -e at spaces unless the value begins with a brace."""
    words = shlex.split(playbook("site.yml", reason=value))
    assert words[-1].startswith("{")
    assert DataLoader().load(words[-1]) == {"reason": value}


# ---------------------------------------------------------------- commands in the source


A_COMMAND = re.compile(
    r"(?:sudo (?!asks)|findmnt |kill |umount |lspci |ethtool |grep -|ps -|nvidia-smi -|journalctl -"
    r"|apt-get (?:-|install|remove)|systemctl (?:--user )?(?:start|stop|status|enable|restart|show)"
    r"|ip (?:link|route get (?!on)|address|-))"
)
WRITERS = ("shell", "on_node", "OnNode", "only", "at", "evidence")


def called(call: ast.Call) -> str:
    return (
        call.func.id
        if isinstance(call.func, ast.Name)
        else call.func.attr
        if isinstance(call.func, ast.Attribute)
        else ""
    )


def shown(part: ast.expr) -> str:
    """Return the text of a part of an f-string. A null character replaces any value that is not a module constant."""
    value = part.value if isinstance(part, ast.FormattedValue) else part
    if isinstance(value, ast.Constant):
        return str(value.value)
    return value.id if isinstance(value, ast.Name) and value.id.isupper() else "\0"


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT / "plugins")))
def test_no_command_is_built_with_an_f_string(path: Path) -> None:
    """A command built with an f-string would contain unquoted values."""
    tree = ast.parse(path.read_text())
    written = {
        id(each)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and called(call) in WRITERS
        for each in ast.walk(call)
    }
    for one in ast.walk(tree):
        if not isinstance(one, ast.JoinedStr) or id(one) in written:
            continue
        text = "".join(shown(part) for part in one.values)
        assert not (A_COMMAND.match(text) and "\0" in text), f"line {one.lineno}: {text!r}"


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT / "plugins")))
def test_placeholders_are_unquoted_and_have_values(path: Path) -> None:
    for call in ast.walk(ast.parse(path.read_text())):
        place = {"shell": 0, "on_node": 1}.get(called(call)) if isinstance(call, ast.Call) else None
        if place is None or not isinstance(call, ast.Call) or len(call.args) <= place:
            continue
        text = call.args[place]
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            names = re.findall(r"\{([a-z_]+)\}", text.value)
            given = {word.arg for word in call.keywords} - {"become"}
            assert set(names) == given, f"line {call.lineno}: {text.value}"
            quoted = re.findall(r"'[^']*'|\"[^\"]*\"", text.value)
            assert not any("{" in one for one in quoted), f"line {call.lineno}: {text.value}"
