"""Sandboxes of the tests: define a name and addresses for each lane, and remove sandboxes."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
BIN = ROOT / ".venv-dev/bin"
# Suffix and address offset of the sandbox of simulated GPU nodes, equal to tests/standins/own_sandbox.yml.
GPU = ("-gpu", 100)
LANES = (("", 0), ("-b", 50))
PLATFORMS = ("-platforms", 100)


@dataclass(frozen=True)
class Sandbox:
    """A sandbox that one lane of stages uses, one stage at a time. prefix: the first three parts of its addresses."""

    name: str
    prefix: str

    @property
    def env(self) -> dict[str, str]:
        return {"MUSTER_SANDBOX": self.name, "MUSTER_SANDBOX_PREFIX": self.prefix}


def named() -> Sandbox:
    """Return the sandbox that the environment names, or else the default sandbox of the tests."""
    return Sandbox(
        os.environ.get("MUSTER_SANDBOX") or "muster-test", os.environ.get("MUSTER_SANDBOX_PREFIX") or "10.203.87"
    )


def beside(sandbox: Sandbox, suffix: str, offset: int) -> Sandbox:
    """Return a further sandbox of the same run. suffix: added to the name. offset: added to the addresses."""
    first, _, third = sandbox.prefix.rpartition(".")
    return Sandbox(sandbox.name + suffix, f"{first}.{(int(third) + offset) % 256}")


def of_lane(lane: int) -> Sandbox:
    return beside(named(), *LANES[lane])


def folder(sandbox: Sandbox) -> Path:
    return ROOT / ".sandbox" / sandbox.name


def remove_all() -> list[str]:
    """Remove all sandboxes of the tests, but not their image. Return the sandboxes that could not be removed."""
    every = [beside(named(), suffix, offset) for suffix, offset in LANES]
    every += [beside(each, *GPU) for each in every]
    failed = [each.name for each in every if folder(each).is_dir() and not remove(each)]
    platforms = beside(named(), *PLATFORMS)
    if folder(platforms).is_dir():
        remove_platforms(f"{platforms.name}-")
    return failed


def remove(sandbox: Sandbox) -> bool:
    print(f"Removing the sandbox {sandbox.name}", flush=True)
    argv = [str(BIN / "ansible-playbook"), "playbooks/sandbox_down.yml", "-i", "inventory/sandbox/hosts.yml"]
    argv += ["-e", '{"sandbox_keep_image": true}']
    env = {**os.environ, **sandbox.env, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    done = subprocess.run(argv, cwd=ROOT, env=env, check=False, capture_output=True, text=True)
    if done.returncode:
        print(done.stdout, done.stderr, sep="")
    return done.returncode == 0


def remove_platforms(begin: str) -> None:
    """Remove the machines, networks and images that a platform run has kept."""
    listed = {
        ("podman", "rm", "--force", "--time=0"): ("podman", "ps", "--all", "--quiet", f"--filter=name=^{begin}"),
        ("podman", "network", "rm"): ("podman", "network", "ls", "--quiet", f"--filter=name=^{begin}"),
        ("podman", "rmi", "--force"): ("podman", "images", "--quiet", f"--filter=reference=localhost/{begin}*"),
    }
    for removal, listing in listed.items():
        found = subprocess.run(listing, check=False, capture_output=True, text=True).stdout.split()
        if found:
            subprocess.run([*removal, *found], check=False, stdout=subprocess.DEVNULL)
