"""A script prints secrets from every documented source in many forms. All other places must not contain the secrets.

Texts are copied to this machine and searched here, because a search command with the secret would match itself.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import uuid
from typing import TYPE_CHECKING, Any

import pytest

import standin_torchrun
from drill import all_pids, processes, read_proc
from paths import ARTIFACTS, BIN, ENVIRONMENT, INVENTORY, ROOT
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from machines import Machine, Play

pytestmark = pytest.mark.slow

WAYS = ("plain", "lines", "vault", "mapping", "typed", "group", "argument", "apart")
GIVEN = {way: f'{way}-"2718/28+18' for way in WAYS}
SECRETS = tuple(GIVEN.values())
IN_ARGUMENTS = {GIVEN["argument"], GIVEN["apart"]}
AS_ANOTHER = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
# Files that another user of the node may read, besides the process list.
LOOK = (
    "cat /proc/[0-9]*/environ; systemctl show 'muster-launch-*';"
    " find /run/muster /var/lib/muster /tmp /var/tmp /run/systemd/transient -type f -exec cat {} +"
)


@pytest.fixture(scope="module")
def nodes(play: Play, node: Callable[[str], Machine]) -> tuple[Machine, Machine]:
    found = node("node1"), node("node2")
    standin_torchrun.provide(play, *found)
    return found


class Launch:
    """A launch of a careless script with all secrets, started as a user does."""

    def __init__(self, folder: Path, env_file: str) -> None:
        self.folder, self.env_file = folder, env_file
        self.gate = f"/run/muster-test-gate-{uuid.uuid4().hex}"
        (folder / "password").write_text("of-the-vault")

    def file(self) -> Path:
        path = self.folder / "tokens"
        path.touch(mode=0o600)
        if self.env_file == "lines":
            path.write_text(f"LINE_PAT='{GIVEN['lines']}'\nREMARK='{GIVEN['mapping']}'\n")
        else:
            path.write_text(json.dumps({"PLAIN_TOKEN": GIVEN["plain"], "REMARK": GIVEN["mapping"]}))
        if self.env_file == "vault":
            path.write_text(json.dumps({"SEALED_DSN": GIVEN["vault"], "REMARK": GIVEN["mapping"]}))
            program, opens = str(BIN / "ansible-vault"), str(self.folder / "password")
            subprocess.run([program, "encrypt", "--vault-password-file", opens, str(path)], check=True)
        return path

    def variables(self, more: dict[str, Any]) -> Path:
        """Write all options of the launch to a file, because all users of this machine can read command lines."""
        given: dict[str, Any] = {
            "launch_script_src": str(ROOT / "tests/integration/payloads/careless.py"),
            "launch_args": [self.gate, f"--hf_token={GIVEN['argument']}", "--password", GIVEN["apart"]],
            "launch_env_file": str(self.file()),
            "cluster_nproc_per_node": 1,
            "cluster_launch_nodes": ["node1", "node2"],
            **more,
        }
        path = self.folder / "given.json"
        path.write_text(json.dumps(given))
        return path

    def inventory(self) -> Path:
        """Write node variables with a template, which only inventories support."""
        env = {"TYPED_PWD": GIVEN["typed"], "GROUP_KEY": "{{ group_key }}"}
        path = self.folder / "more.yml"
        path.write_text(json.dumps({"gpu_nodes": {"vars": {"launch_env": env, "group_key": GIVEN["group"]}}}))
        return path

    def begin(self, *words: str, **more: Any) -> subprocess.Popen[bytes]:
        argv = [str(BIN / "ansible-playbook"), "playbooks/launch.yml", "-i", str(INVENTORY)]
        argv += ["-i", str(self.inventory()), "-vvv"]
        argv += [
            "-e",
            f"cluster_torchrun={standin_torchrun.TORCHRUN}",
            "-e",
            f"cluster_artifacts_dir={self.folder}/kept",
        ]
        argv += ["-e", f"@{self.variables(more)}", "--vault-password-file", str(self.folder / "password"), *words]
        with (self.folder / "shown").open("ab") as shown:
            return subprocess.Popen(
                argv,
                cwd=ROOT,
                env={**os.environ, **ENVIRONMENT},
                stdin=subprocess.DEVNULL,
                stdout=shown,
                stderr=shown,
            )

    def kept(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.run.rglob("*") if path.is_file()}

    def shown(self) -> str:
        return (self.folder / "shown").read_text()

    @property
    def run(self) -> Path:
        return (self.folder / "kept" / ARTIFACTS.name / "latest").resolve()

    def printed(self) -> bool:
        logs = list(self.run.glob("logs/*/rank*.stdout.log"))
        return len(logs) == 2 and all("told\n" in log.read_text() for log in logs)


@pytest.fixture(params=["plain", "lines", "vault"])
def launch(request: pytest.FixtureRequest, tmp_path: Path, nodes: tuple[Machine, Machine]) -> Iterator[Launch]:
    launch = Launch(tmp_path, request.param)
    yield launch
    for machine in nodes:
        if launch.run.is_dir() and processes(launch.run.name):
            machine.inside("systemctl", "stop", f"muster-launch-{launch.run.name}.service", check=False)
        machine.inside("rm", "--force", launch.gate)


def found(text: str, secrets: Iterable[str] = SECRETS) -> list[str]:
    """Return the secrets contained in the text in any form."""
    return [
        secret
        for secret in secrets
        if any(
            form in text
            for form in (secret, json.dumps(secret)[1:-1], base64.b64encode(f"ada:{secret}".encode()).decode()[6:-4])
        )
    ]


def test_secrets_appear_only_in_allowed_places(launch: Launch, nodes: tuple[Machine, Machine]) -> None:
    with launch.begin() as playing:
        until(lambda: launch.printed() or playing.poll() is not None, PATIENCE, "the ranks have printed their secrets")
        assert playing.poll() is None, launch.shown()
        not_in_arguments = [secret for secret in SECRETS if secret not in IN_ARGUMENTS]
        assert found("".join(read_proc(pid, "environ") for pid in all_pids())), "the ranks must have the secrets"
        assert found("".join(read_proc(pid, "cmdline") for pid in all_pids()), not_in_arguments) == []
        for machine in nodes:
            stranger = machine.inside(*AS_ANOTHER, "sh", "-c", LOOK, check=False).stdout
            assert "Id=muster-launch-" in stranger
            assert found(stranger) == []
            assert found(machine.inside("systemctl", "show", "muster-launch-*").stdout) == []
            assert found(machine.inside("journalctl", "--quiet", "--all").stdout) == []
        nodes[0].inside("touch", launch.gate)
        nodes[1].inside("touch", launch.gate)
        playing.wait(PATIENCE)
    assert "no access with" in json.loads((launch.run / "verdict.json").read_text())["summary"]
    kept = launch.kept()
    assert {"run.json", "report.html", "plan.json", "rank0.stderr.log", "rank1.stdout.log"} <= kept.keys()
    assert found(launch.shown()) == []
    assert {name: found(text) for name, text in kept.items() if found(text)} == {}
    for machine in nodes:
        assert found(machine.inside("journalctl", "--quiet", "--all").stdout) == []
    readable = subprocess.run([*AS_ANOTHER, "cat", str(launch.run / "plan.json")], check=False, capture_output=True)
    assert b"Permission denied" in readable.stderr


@pytest.mark.parametrize("launch", ["lines"], indirect=True)
def test_secrets_are_masked_in_logs_fetched_later(launch: Launch, nodes: tuple[Machine, Machine]) -> None:
    with launch.begin(launch_detached=True, launch_time_limit=600) as playing:
        assert playing.wait(PATIENCE) == 0, launch.shown()
    with launch.begin("-e", f"launch_attach={launch.run.name}") as playing:
        until(lambda: launch.printed() or playing.poll() is not None, PATIENCE, "the ranks have printed their secrets")
        assert playing.poll() is None, launch.shown()
        for machine in nodes:
            machine.inside("touch", launch.gate)
        playing.wait(PATIENCE)
    assert "no access with" in launch.kept()["verdict.json"]
    assert found(launch.shown() + "".join(launch.kept().values())) == []
