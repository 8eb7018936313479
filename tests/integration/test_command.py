"""The command muster on real nodes: its JSON, Ctrl-C, nodes that cannot be reached, and ansible-runner."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import jsonschema
import pexpect
import pytest

import standin_torchrun
from lab import at, make_lab
from paths import BIN, INVENTORY, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine

PATIENCE = 120  # seconds
SCHEMA = json.loads((ROOT / "docs/results.schema.json").read_text(encoding="utf-8"))
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "MUSTER_CLUSTER"))},
    "PYTHONPATH": str(ROOT),
    "TERM": "dumb",
}
# Verbs that contact nodes, with their exit status if no node is reachable. Some verbs report that as their result.
CONTACTING = {
    "trust --confirmed": 1,
    "check": 4,
    "up": 4,
    "inspect": 4,
    "baseline": 4,
    "network": 4,
    "gpu-stack": 4,
    "pytorch": 4,
    "smoke": 1,
    "run train.py": 1,
    "jobs": 1,
    "attach 20260101-000000-abcd": 1,
    "stop 20260101-000000-abcd": 1,
    "why": 0,
    "status": 0,
    "health": 4,
    "drift": 1,
}


def argv_of(words: str, inventory: Path, *more: str) -> list[str]:
    return [sys.executable, "-P", "-m", "muster_cli", *words.split(), "-c", str(inventory), *more]


def muster(words: str, folder: Path, inventory: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder, without a terminal."""
    argv = argv_of(words, inventory, *more)
    return subprocess.run(
        argv, cwd=folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project folder with a script that needs no PyTorch."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project/train.py").write_text("import os\nprint('rank', os.environ['RANK'])\n")
    return tmp_path / "project"


@pytest.fixture
def inventory(three_nodes: dict[str, Machine]) -> Path:
    for machine in three_nodes.values():
        standin_torchrun.put(machine)
    return INVENTORY


def test_json_of_every_verb_follows_the_schema(project: Path, inventory: Path) -> None:
    found = {}
    torchrun = ("-o", f"cluster_torchrun={standin_torchrun.TORCHRUN}")
    for words in ("run train.py", "jobs --history", "status", "health", "drift", "why", "check baseline"):
        done = muster(words, project, inventory, "--json", *(torchrun if words.startswith("run") else ()))
        verb = words.split()[0]
        assert done.stdout.count("\n") == 1, done.stdout + done.stderr
        found[verb] = json.loads(done.stdout)
        jsonschema.validate(found[verb], SCHEMA)
        assert found[verb]["summary"] in " ".join(done.stderr.split()), verb
        assert (done.returncode == 0) == (found[verb]["status"] in ("done", "healthy", "degraded")), words
    launch = found["run"]["artifacts"].rpartition("/")[2]
    assert found["run"]["verdict"]["status"] == "healthy", "all ranks succeeded"
    assert launch in json.dumps(found["jobs"]["jobs"])
    assert {"node1", "node2", "node3"} <= set(re.findall(r"node\d", json.dumps(found["status"]["cluster"])))
    assert found["drift"]["drift"]["nodes"]["node1"]["reached"]
    assert "diagnosis" not in found["why"], "the last launch succeeded"
    assert found["check"]["status"] == "done"


@pytest.fixture
def unreachable(tmp_path: Path) -> Iterator[Path]:
    """Yield an inventory of a node whose port has no listener."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield one_node(tmp_path / "lab", taken.getsockname()[1])


def one_node(folder: Path, port: int) -> Path:
    return make_lab(folder, {"gpu01": {"ansible_host": "127.0.0.1", "ansible_port": port}})


def test_unreachable_node_is_named_by_every_verb(project: Path, unreachable: Path) -> None:
    for words, status in CONTACTING.items():
        done = muster(words, project, unreachable)
        assert done.returncode == status, (words, done.stdout, done.stderr)
        lines = done.stdout + done.stderr
        assert "gpu01" in lines, words
        if words != "why":
            assert re.search(r"Connection refused|not responding|No node responded", lines), (words, lines)
        assert "Traceback" not in lines, words


def test_ctrl_c_ends_every_verb(project: Path, tmp_path: Path) -> None:
    """The node accepts connections and never answers, so each verb waits for it."""
    with ExitStack() as stack:
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=128))
        lab = one_node(tmp_path / "silent", silent.getsockname()[1])
        for words in CONTACTING:
            drain(silent)
            argv = argv_of(words, lab)
            child = pexpect.spawn(argv[0], argv[1:], env=ENVIRONMENT, cwd=str(project), timeout=PATIENCE)
            accepted, _ = silent.accept()
            child.sendintr()
            child.expect(pexpect.EOF)
            child.close()
            accepted.close()
            assert child.exitstatus == 130, (words, child.exitstatus, child.before.decode())


def drain(server: socket.socket) -> None:
    """Close the waiting connections, which the verb before has left."""
    server.settimeout(0)
    with suppress(BlockingIOError):
        while True:
            server.accept()[0].close()
    server.settimeout(PATIENCE)


def test_runner_verifies_host_keys_and_writes_the_report(
    three_nodes: dict[str, Machine], node: Callable[[str], Machine], tmp_path: Path
) -> None:
    """The program in docs/from_python.md. The known host key of node1 belongs to another machine."""
    node1, outsider = three_nodes["node1"], node("outsider")
    lab = make_lab(tmp_path / "lab", at(node1))
    program = re.findall(r"```python\n(.*?)```", (ROOT / "docs/from_python.md").read_text(), re.DOTALL)[0]
    for old, new in (
        ("{MUSTER}/inventory/lab", str(lab)),
        ("/srv/muster", str(ROOT)),
        ("{MUSTER}/.venv/bin", str(BIN)),
    ):
        assert old in program
        program = program.replace(old, new)
    shown = []
    for machine in (node1, outsider):
        key, value, *_ = machine.inside("cat", "/etc/ssh/ssh_host_ed25519_key.pub").stdout.split()
        (lab / "known_hosts").write_text(f"{node1.address} {key} {value}\n")
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        shown.append(done.stdout)
    trusted, refused = shown
    assert trusted.splitlines()[-1] == "successful 0"
    assert list((ROOT / "artifacts/lab").glob("*/report.html")), "the callback of the report ran"
    assert refused.splitlines()[-1].startswith("failed")
    assert "host key" in refused, refused
