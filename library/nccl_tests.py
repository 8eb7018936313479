#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Builds nccl-tests from source with the privileges of the training user."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_tests
short_description: Build nccl-tests from source on a node
version_added: "0.1.0"
description:
  - The name of a build's folder contains all inputs of the build. A build is complete if its program starts as the
    training user with the libraries of the node. - The source is unpacked and compiled as the training user in a
    separate folder. An incomplete build is restarted.
author: The Muster authors
options:
  mode:
    description: Mode of the module. V(manage) builds if the build is missing. V(verify) fails if the build is missing.
    type: str
    choices: [manage, verify]
    default: manage
  user:
    description: Training user.
    type: str
    required: true
  version:
    description: Version of nccl-tests.
    type: str
    required: true
  sha256:
    description: SHA-256 checksum of the source archive.
    type: str
    required: true
  toolkits:
    description: Versions of the CUDA toolkits on the node.
    type: list
    elements: str
    required: true
  default:
    description: Version of the preferred CUDA toolkit.
    type: str
    default: ""
  packages:
    description: Versions of the NCCL packages, by package name.
    type: dict
    required: true
  root:
    description: Folder for the builds.
    type: path
    required: true
  archive:
    description: Path of the source archive on the node. If empty, the module only checks whether the build exists.
    type: path
    default: ""
extends_documentation_fragment: [role_options.posix, action_common_attributes, role_options.node]
"""

EXAMPLES = r"""
- name: Check nccl-tests
  nccl_tests:
    node: "{{ inventory_hostname }}"
    user: muster
    version: 2.19.6
    sha256: "{{ nccl_tests_sha256 }}"
    toolkits: ["13.0"]
    packages: {libnccl2: 2.29.7-1+cuda13.2}
    root: /var/lib/muster/nccl-tests
"""

RETURN = r"""
folder:
  description: Folder of the programs.
  returned: success
  type: str
  sample: /var/lib/muster/nccl-tests/2.19.6_cuda13.0_nccl2.29.7_1f0a2b3c/build
needed: {description: Whether a build is required., returned: success, type: bool}
"""

import fcntl
import hashlib
import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import IO, Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.gpu_stack import nccl_tests as domain
from ansible.module_utils.muster.verdict.commands import playbook
from ansible.module_utils.muster_node.tools.result import RefusedError, diff, one_sentence

SPEC = {
    "node": {"type": "str", "required": True},
    "mode": {"type": "str", "choices": ["manage", "verify"], "default": "manage"},
    "user": {"type": "str", "required": True},
    "version": {"type": "str", "required": True},
    "sha256": {"type": "str", "required": True},
    "toolkits": {"type": "list", "elements": "str", "required": True},
    "default": {"type": "str", "default": ""},
    "packages": {"type": "dict", "required": True},
    "root": {"type": "path", "required": True},
    "archive": {"type": "path", "default": ""},
}


LINES_SHOWN = 8
MOST_SHOWN = 64_000  # bytes of the log that these lines are taken from
SECONDS = 3600  # time limit of unpacking and of compiling
MARGIN = 30  # seconds after which a command is abandoned if timeout, a process of the same user, does not end it


class Builder:
    """Runs the steps of a build, in the folder of the build and as the training user."""

    def __init__(self, user: str, lock: int | None = None) -> None:
        try:
            entry = pwd.getpwnam(user)
        except KeyError:
            fix = f"Run the baseline first: {playbook('site.yml', tags='baseline')}"
            raise RefusedError(f"the user {user} does not exist. {fix}") from None
        self.uid, self.gid = entry.pw_uid, entry.pw_gid
        self.ids: dict[str, Any] = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": [entry.pw_gid]}
        self.lock = lock

    def run(self, *argv: str, cwd: Path, log: IO[bytes] | None = None, seconds: int = 60) -> int | str:
        """Return the exit code of the command, or the error."""
        # The unpacked code does not get the module's environment. timeout also ends child processes.
        try:
            ended = subprocess.run(
                ["timeout", "--kill-after=10", str(seconds), *argv],
                cwd=cwd,
                env={"PATH": "/usr/bin:/bin", "HOME": str(cwd), "LC_ALL": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=log or subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
                check=False,
                umask=0o022,
                timeout=seconds + MARGIN,
                pass_fds=[] if self.lock is None else [self.lock],
                **self.ids,
            ).returncode
        except OSError as error:
            return str(error.strerror)
        except subprocess.TimeoutExpired:
            return f"no result within {seconds} s"
        return f"no result within {seconds} s" if ended in (124, 137) else ended

    def starts(self, folder: Path) -> int | str:
        """Run the program with -h, which requires its libraries but no GPU. Return 0 if it starts, or the error."""
        if not (folder / "build" / domain.PROGRAM).is_file():
            return "not built"
        return self.run(f"build/{domain.PROGRAM}", "-h", cwd=folder)


def digest(path: Path) -> str:
    with path.open("rb") as stream:
        whole = hashlib.sha256()
        while part := stream.read(1 << 20):
            whole.update(part)
    return whole.hexdigest()


def compile_in(half: Path, builder: Builder, given: dict[str, Any], home: str) -> None:
    """Unpack and compile the source in this folder."""
    # Owned by root, and not in a folder that the user can write to.
    log = half.with_suffix(".log")
    with log.open("wb") as stream:
        steps = [
            ("tar", "--extract", "--strip-components=1", f"--file={given['archive']}"),
            ("make", f"--jobs={os.cpu_count() or 1}", f"CUDA_HOME={home}", f"NVCC={home}/bin/nvcc"),
        ]
        for step in steps:
            ended = builder.run(*step, cwd=half, log=stream, seconds=SECONDS)
            if ended != 0:
                last = log.read_text(errors="replace").splitlines()[-LINES_SHOWN:]
                raise RefusedError(
                    f"{step[0]} failed for nccl-tests ({ended}); complete log in {log}: {' | '.join(last)}"
                )


def build(given: dict[str, Any], wanted: domain.NcclTestsBuild) -> None:
    root, archive = Path(given["root"]), Path(given["archive"])
    found = digest(archive)
    if found != given["sha256"].lower():
        archive.unlink()
        raise RefusedError(
            f"the source of nccl-tests has the SHA-256 {found}, but nccl_tests_sha256 is {given['sha256']}. Nothing "
            "was unpacked. Check the download and nccl_tests_sha256"
        )
    home = f"/usr/local/cuda-{wanted.cuda}"
    if not Path(home, "bin/nvcc").exists():
        raise RefusedError(f"{home}/bin/nvcc, the compiler of nccl-tests, is missing. Set cuda_toolkit_mode to manage")
    lock = os.open(root, os.O_RDONLY)
    try:
        # The compiler inherits the lock, so that the next run waits for it after this run was killed.
        fcntl.flock(lock, fcntl.LOCK_EX)
        builder = Builder(given["user"], lock)
        half = root / f"{wanted.name}.half"
        if half.exists():
            shutil.rmtree(half)
        half.mkdir(mode=0o755)
        os.chown(half, builder.uid, builder.gid)
        compile_in(half, builder, given, home)
        ended = builder.starts(half)
        if ended != 0:
            raise RefusedError(
                f"{domain.PROGRAM} was built, but does not start ({ended}). Check: ldd {half}/build/*_perf"
            )
        final = root / wanted.name
        if final.exists():
            shutil.rmtree(final)
        half.rename(final)
    finally:
        os.close(lock)


def run_module(module: AnsibleModule) -> dict[str, Any]:
    given = module.params
    wanted = domain.build_of(given["version"], given["sha256"], given["toolkits"], given["default"], given["packages"])
    folder = Path(given["root"]) / wanted.name
    builds = bool(given["archive"]) and given["mode"] == "manage" and not module.check_mode
    # Without the folder, the user may not exist yet either (check mode on a bare node).
    ended = Builder(given["user"]).starts(folder) if folder.exists() else "not built"
    needed = ended != 0
    if needed and given["mode"] == "verify":
        raise RefusedError(f"nccl-tests {given['version']} does not start in {folder} ({ended})")
    if needed and builds:
        build(given, wanted)
    return {
        "changed": needed and (builds or module.check_mode),
        "needed": needed,
        "folder": str(folder / "build"),
        "diff": diff("nccl-tests", "" if needed else f"{folder}\n", f"{folder}\n"),
    }


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    with one_sentence(module, refusals=(domain.NcclTestsError,)):
        module.exit_json(**run_module(module))


if __name__ == "__main__":
    main()
