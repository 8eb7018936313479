"""Run playbooks on the sandbox and inspect its machines from outside."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import ansible_runner
import yaml

from paths import ENVIRONMENT, INVENTORY, NAME, ROOT, SANDBOX, SANDBOXES
from waiting import until

if TYPE_CHECKING:
    from pathlib import Path

NODES = ("node1", "node2", "node3")


@dataclass(frozen=True)
class Result:
    """The result of a playbook run."""

    rc: int
    stdout: str = field(repr=False)
    stats: dict[str, dict[str, int]]
    events: list[dict[str, Any]] = field(repr=False)

    @property
    def changed(self) -> list[str]:
        """Return the changed tasks as "host: task"."""
        return [
            f"{event['event_data']['host']}: {event['event_data']['task']}"
            for event in self.events
            if event["event"] == "runner_on_ok" and event["event_data"]["res"].get("changed")
        ]

    def changing_roles(self, name: str) -> set[str]:
        """Return the roles that changed something on this node, or would change it in check mode."""
        events = [event["event_data"] for event in self.events if event["event"] == "runner_on_ok"]
        return {data["role"] for data in events if data["host"] == name and data["res"].get("changed")}

    def results(self, task: str) -> dict[str, dict[str, Any]]:
        """Return the result of this task on each host."""
        return {
            event["event_data"]["host"]: event["event_data"]["res"]
            for event in self.events
            if event["event"] in ("runner_on_ok", "runner_on_failed") and event["event_data"]["task"] == task
        }


class Play(Protocol):
    """Run a playbook to its end."""

    def __call__(
        self,
        playbook: str,
        *,
        extravars: dict[str, Any] | None = None,
        tags: str | None = None,
        limit: str | None = None,
        check: bool = False,
        cmdline: str = "",
        inventory: Path = INVENTORY,
    ) -> Result: ...


@dataclass(frozen=True)
class Machine:
    name: str
    container: str
    address: str
    # The sandbox folder with the key to this machine.
    folder: Path = SANDBOX

    def inside(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command in the container as root, without SSH and firewall."""
        argv = ["podman", "exec", self.container, *command]
        done = subprocess.run(argv, check=False, capture_output=True, text=True)
        if check and done.returncode:
            raise RuntimeError(f"{self.name}: {command} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done

    def ssh(self, command: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a shell command over SSH as the administrator, as the controller does."""
        options = ["BatchMode=yes", "ConnectTimeout=5", "IdentitiesOnly=yes"]
        options.append(f"UserKnownHostsFile={self.folder}/known_hosts")
        argv = ["ssh", "-i", str(self.folder / "id_ed25519"), *(f"-o{option}" for option in options)]
        argv += [f"admin@{self.address}", command]
        return subprocess.run(argv, check=check, capture_output=True, text=True)

    def ssh_answers(self) -> bool:
        return self.ssh("true", check=False).returncode == 0

    def restart_sshd(self) -> None:
        """Restart sshd. The port is open when this function returns, which a reload does not guarantee."""
        self.inside("systemctl", "restart", "ssh")

    def podman_copy(self, source: Path, path: str) -> None:
        """Copy a local file into the container."""
        subprocess.run(["podman", "cp", str(source), f"{self.container}:{path}"], check=True, capture_output=True)

    def podman(self, verb: str, *arguments: str) -> None:
        """Run a podman verb such as stop, start, pause or unpause on the container.

        With cgroup v1, pausing a busy container can fail and leave the container running, so pause is retried.
        """
        argv = ["podman", verb, *arguments, self.container]
        done = subprocess.run(argv, check=verb != "pause", stdout=subprocess.DEVNULL)
        if done.returncode:
            until(lambda: subprocess.run(argv, check=False).returncode == 0, what=f"{self.name} is paused")


def never() -> bool:
    """Never cancel the run. Without this callback, ansible-runner replaces pytest's handlers for SIGINT and SIGTERM."""
    return False


def run_playbook(folder: Path, playbook: str, **requested: Any) -> Result:
    check = ["--check", "--diff"] if requested.pop("check", False) else []
    cmdline = " ".join([*check, requested.pop("cmdline", "")])
    run = ansible_runner.run(
        private_data_dir=str(folder),
        project_dir=str(ROOT),
        playbook=playbook,
        inventory=str(requested.pop("inventory", INVENTORY)),
        envvars=ENVIRONMENT,
        cmdline=cmdline or None,
        quiet=True,
        cancel_callback=never,
        **{name: value for name, value in requested.items() if value is not None},
    )
    return Result(run.rc, re.sub(r"\x1b\[[0-9;]*m", "", run.stdout.read()), run.stats or {}, list(run.events))


def list_nodes(count: int = len(NODES)) -> None:
    """Write the inventory of the tests with this number of nodes, as script/demo --nodes does. Keep existing
    entries."""
    for name in ("hosts.yml", "group_vars"):
        if not (INVENTORY / name).exists():
            INVENTORY.mkdir(parents=True, exist_ok=True)
            (INVENTORY / name).symlink_to(SANDBOXES / name)
    more = INVENTORY / "hosts_more.yml"
    listed = yaml.safe_load(more.read_text())["gpu_nodes"]["hosts"] if more.exists() else {}
    named = {f"node{number}": 10 + number for number in range(3, count + 1)}
    if missing := named.keys() - listed:
        hosts = {name: {"ansible_host": f"{{{{ sandbox_prefix }}}}.{named[name]}"} for name in sorted(missing)}
        more.write_text(yaml.safe_dump({"gpu_nodes": {"hosts": {**listed, **hosts}}}))


def find_machine(name: str, suffix: str = "") -> Machine:
    """Find a machine by its inventory name. suffix: suffix of the name of a second sandbox."""
    container = f"{NAME}{suffix}-{name}"
    template = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
    argv = ["podman", "inspect", "--format", template, container]
    address = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    return Machine(name, container, address, SANDBOX.with_name(SANDBOX.name + suffix))


def make_bare(folder: Path, name: str) -> Machine:
    """Replace a sandbox machine with a new one."""
    find_machine(name).podman("rm", "--force", "--time=0")
    result = run_playbook(folder, "playbooks/sandbox_up.yml")
    assert result.rc == 0, result.stdout
    return find_machine(name)
