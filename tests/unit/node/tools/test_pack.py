"""Packing of a program and its modules into one text that runs without other files."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from muster_node.tools.pack import IMPORT, imported, imports, pack, sent
from muster_node.tools.program import BOOTSTRAP, answer_in

ROOM = Path(__file__).parents[4] / "plugins/module_utils/muster_node"
PROGRAMS = sorted(path.stem for path in (ROOM / "programs").glob("*.py") if path.stem != "__init__")
SSHD = "muster_node.programs.sshd"


TOOLS = {
    "activity": {"files", "process", "run"},
    "claim": {"files"},
    "collective_ranks": {"files"},
    "data_copy": {"disk", "files", "transfer", "trust"},
    "diagnosis": {"as_user", "files", "process", "run", "trees"},
    "distribution": {"as_user", "files", "sockets", "trust"},
    "firewall": {"files", "process", "run", "sockets"},
    "guard": {"files", "run"},
    "image": {"as_user", "disk", "files", "process", "run", "sockets", "trees", "trust"},
    "inside": {"files", "run"},
    "at_work": {"as_user", "files", "process"},
    "drift": {"boot", "files", "run"},
    "jobs": {"as_user", "files", "process", "run", "trees"},
    "members": {"files", "trust"},
    "mtu": {"files", "run"},
    "kernel": {"boot", "files", "run"},
    "launch": {
        *(
            "as_user",
            "control_group",
            "disk",
            "files",
            "kernel_files",
            "kernel_lines",
            "pack",
            "process",
            "run",
            "sockets",
        ),
        *("trees", "trust"),
    },
    "notebook": {"as_user", "files", "run"},
    "probe_caller": {"files", "kernel_files", "resolvers", "routes"},
    "probe_listener": {"files", "kernel_files", "process", "run", "sockets"},
    "rails": {"files", "process", "run", "sockets"},
    "shared_files": {"as_user"},
    "site_questions": {"files", "run"},
    "sshd": {"files", "run"},
    "status": {
        *("as_user", "boot", "check_results", "disk", "files", "process", "run", "torch_version", "trees", "trust"),
    },
    "torch_facts": {"files", "torch_version"},
    "watcher": {"as_user", "files", "process", "run", "trees", "trust"},
}
# Rooms used only by some programs. A launch copies its project from the distribution store and records its node.
ROOMS = {
    "launch": ["launch", "distribution", "diagnosis", "members"],
    "image": ["launch", "distribution", "members"],
    "jobs": ["launch"],
    "data_copy": ["distribution", "shared_data"],
    "distribution": ["distribution"],
    "diagnosis": ["diagnosis", "launch"],
    "members": ["members"],
    "status": ["launch", "status"],
    "at_work": ["upgrade"],
    "kernel": ["upgrade"],
    "notebook": ["workbench"],
    "drift": ["drift"],
    "activity": ["drift"],
    "watcher": ["launch"],
}


@pytest.mark.parametrize("path", sorted(ROOM.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOM)))
def test_imports_match_those_of_the_python_parser(path: Path) -> None:
    text = path.read_text()
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom) and node.level]
    read = [("." * node.level, node.module or "", [each.name for each in node.names]) for node in nodes]
    assert sorted(imports(text, IMPORT)) == sorted(read)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_contains_exactly_the_modules_it_imports(name: str) -> None:
    held = modules_of(name)
    own = {one for one in held if one.partition(".")[0] in ROOMS.get(name, ())}
    assert held - own == {f"programs.{name}", "tools.program", *(f"tools.{tool}" for tool in TOOLS[name])}


def test_every_module_is_part_of_a_program() -> None:
    # For the two excluded rooms, Ansible modules import files that are in no program.
    for room in {room for rooms in ROOMS.values() for room in rooms} - {"workbench", "shared_data"}:
        there = {f"{room}.{path.stem}" for path in (ROOM / room).glob("[a-z]*.py")}
        assert there <= set().union(*(modules_of(name) for name, rooms in ROOMS.items() if room in rooms))


def modules_of(name: str) -> set[str]:
    return set(re.findall(r"^'muster_node\.([\w.]+)': \($", pack(f"muster_node.programs.{name}"), re.MULTILINE))


def test_program_runs_from_stdin_with_its_request(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("Snow\N{SNOWMAN}\n")
    request = {"path": str(tmp_path / "file"), "secret": "\N{SNOWMAN}" * 100_000}
    argv = [sys.executable, "-I", "-S", "-c", BOOTSTRAP, "look"]
    done = subprocess.run(argv, input=sent(SSHD, request), capture_output=True, check=True, timeout=60)
    assert answer_in(done.stdout.decode()) == {"before": "Snow\N{SNOWMAN}\n"}
    assert done.stderr == b""


def test_program_runs_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "sshd.py").write_text(pack(SSHD))
    argv = [sys.executable, "-I", "-S", str(tmp_path / "sshd.py"), "look"]
    given = json.dumps({"path": str(tmp_path / "nowhere")})
    done = subprocess.run(argv, input=given, capture_output=True, text=True, check=True, timeout=60)
    assert answer_in(done.stdout) == {"before": None}
    assert [path.name for path in tmp_path.iterdir()] == ["sshd.py"]


def test_program_runs_from_the_source_tree(tmp_path: Path) -> None:
    argv = [sys.executable, "-S", "-m", SSHD, "look"]
    given = json.dumps({"path": str(tmp_path / "nowhere")})
    done = subprocess.run(argv, input=given, capture_output=True, text=True, check=True, timeout=60, cwd=ROOM.parent)
    assert answer_in(done.stdout) == {"before": None}


def test_failure_reports_file_and_line() -> None:
    argv = [sys.executable, "-I", "-S", "-c", BOOTSTRAP, "look"]
    done = subprocess.run(argv, input=sent(SSHD, {}), capture_output=True, text=False, check=False, timeout=60)
    assert done.returncode == 1
    assert 'File "muster_node/programs/sshd.py", line ' in done.stderr.decode()
    assert done.stderr.decode().endswith("KeyError: 'path'\n")


def test_program_can_read_the_text_that_was_sent() -> None:
    text = pack("muster_node.programs.guard")
    script = (
        text.rpartition("\nrun(")[0]
        + "\nrun('probe', "
        + repr(
            {
                "muster_node.tools.program": (ROOM / "tools/program.py").read_text(),
                "probe": "import sys\nfrom muster_node.tools.program import own_text\n"
                "def main():\n    sys.stdout.write(own_text())\n",
            }
        )
        + ")\n"
    )
    first = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True)
    again = subprocess.run([sys.executable, "-I", "-S", "-c", first.stdout], capture_output=True, text=True, check=True)
    assert first.stdout
    assert again.stdout == first.stdout


def test_absolute_imports_of_the_muster_package_are_packed() -> None:
    line = "from ansible.module_utils.muster.network import ssh_mesh"
    assert [*imported("muster_node.programs.x", line, "muster_node", "muster")] == ["muster.network.ssh_mesh"]
    there = pack("muster_node.road.role_looks")
    assert "\n'ansible.module_utils.muster.network.ssh_mesh': (" in there
    assert [*imported("muster_node.programs.x", line, "muster_node")] == []


def test_failed_probe_causes_the_role_to_run() -> None:
    argv = [sys.executable, "-I", "-S", "-c", BOOTSTRAP, "look"]
    asked = {"looks": {"one": {"module": "nothing", "options": {}}}, "remembers": False, "full": False}
    text = sent("muster_node.road.role_looks", asked)
    done = subprocess.run(argv, input=text, capture_output=True, check=True, timeout=60)
    assert answer_in(done.stdout.decode()) == {"seen": {"one": {"why": ["KeyError: 'nothing'"], "warnings": []}}}


def test_imports_outside_the_package_are_rejected() -> None:
    with pytest.raises(ImportError, match="imports from outside of muster_node"):
        list(imported("muster_node.programs.x", "from ...muster.launch import plan", "muster_node"))


def test_unknown_program_is_rejected() -> None:
    with pytest.raises(ModuleNotFoundError):
        pack("muster_node.programs.nowhere")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('Welcome!\n{"a": 1}\n{broken\n', {"a": 1}),
        ('{"a": 1}\n{"a": 2}\nbye\n', {"a": 2}),
        ("{broken\n", None),
        ("[1]\n", None),
        ("", None),
    ],
)
def test_answer_is_the_last_line_with_a_json_object(text: str, found: object) -> None:
    assert answer_in(text) == found
