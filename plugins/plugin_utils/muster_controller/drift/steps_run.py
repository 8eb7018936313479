"""Run steps of site.yml in a separate ansible-playbook, to apply changes or to list them in check mode.

The run uses the inventories, variables and connection options of this run. The callback collect returns the results of
its tasks for each node. Passwords that the user entered are passed through named pipes in a private folder, so that
they never appear in an argument list or on disk.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible import constants, context

from muster_controller.artifacts.private_files import FILE, make_folder
from muster_controller.playbook.node_error import one_line
from muster_controller.playbook.variables import project_root
from muster_node.tools import files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ansible.plugins.action import ActionBase

    from muster.drift.model import Taken

COLLECT = "MUSTER_COLLECT"
MOST = 64_000_000  # bytes of task results
MOST_OF_A_NODE = 1_000_000  # so that one node cannot fill this up
SECONDS = 4 * 3600.0  # for the steps, which may install a driver and build environments
GRACE = 30.0  # to stop
CHECK_SECONDS = 3600.0  # in check mode
LATE = 124
FOREIGN = ("AWX_", "RUNNER_", "JOB_EVENT")
LAST = 4000  # bytes of output, whose last line has the reason of a failure
FLAGS = {
    "remote_user": "--user",
    "private_key_file": "--private-key",
    "connection": "--connection",
    "become_method": "--become-method",
    "become_user": "--become-user",
    "ssh_common_args": "--ssh-common-args",
    "ssh_extra_args": "--ssh-extra-args",
    "timeout": "--timeout",
    "forks": "--forks",
}


@dataclass(frozen=True)
class StepsOutcome:
    """said: the results of tasks that failed, or that changed or would change something. code: the exit status. why:
    the last line of the output."""

    said: list[Taken]
    code: int
    why: str

    @property
    def worked(self) -> bool:
        """Return whether the run completed, even if nodes failed or were unreachable."""
        return self.code in (0, 2, 4, 6)


def run_steps(
    action: ActionBase,
    tags: Sequence[str],
    limit: str,
    *,
    check: bool,
    log: Path,
    variables: Mapping[str, Any] | None = None,
) -> StepsOutcome:
    """Run these steps on the nodes that match the pattern ("" matches all). log: the file for the output. variables:
    additional variables for the run."""
    make_folder(log.parent)
    with _folder() as folder, _secrets(action, folder) as secrets:
        collected = folder / "collected.jsonl"
        more = ["-e", json.dumps(variables)] if variables else []
        argv = [*command(tags, limit, check=check), *more, *secrets]
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, FILE)
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=handle,
                stderr=handle,
                env=environment(collected, check=check),
                cwd=Path.cwd(),
            )
        finally:
            os.close(handle)
        late = ended_late(process, CHECK_SECONDS if check else SECONDS)
        said = [*_lines(collected)]
    last = one_line(files.part(str(log), -LAST, LAST).decode("utf-8", "replace").strip().rpartition("\n")[2])
    return StepsOutcome(said, LATE if late else process.returncode, late or last)


def ended_late(process: subprocess.Popen[bytes], seconds: float) -> str:
    """Wait for a process. If it takes longer, stop it, and return why."""
    with process:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
            process.kill()
            return f"stopped after {seconds:.0f} s; the last lines of the log name the task"
        except BaseException:
            process.kill()
            raise
    return ""


def command(tags: Sequence[str], limit: str, *, check: bool) -> list[str]:
    given: Mapping[str, Any] = context.CLIARGS
    program = Path(sys.argv[0]).absolute()
    if not program.name.startswith("ansible-playbook"):
        program = Path(sys.executable).with_name("ansible-playbook")
    argv = [sys.executable, str(program), str(project_root() / "site.yml"), "--tags", ",".join(tags)]
    for source in given.get("inventory") or ():
        argv += ["-i", source]
    argv += ["--limit", limit] if limit else []
    argv += ["--check", "--diff"] if check else []
    for word in given.get("extra_vars") or ():
        argv += ["-e", str(word)]
    for name, flag in FLAGS.items():
        if given.get(name) not in (None, "") and given.get(name) != _default(name):
            argv += [flag, str(given[name])]
    return argv + (["--become"] if given.get("become") else [])


def _default(name: str) -> Any:
    known = {"remote_user": "DEFAULT_REMOTE_USER", "timeout": "DEFAULT_TIMEOUT", "forks": "DEFAULT_FORKS"}
    known |= {"connection": "DEFAULT_TRANSPORT", "become_method": "DEFAULT_BECOME_METHOD"}
    return getattr(constants, known[name], None) if name in known else None


def environment(collected: Path, *, check: bool) -> dict[str, str]:
    """Return the environment of the inner run. A run in check mode writes no report; a real run writes one and claims
    its nodes. Callbacks of a driver such as ansible-runner are disabled, because the driver expects only events of the
    outer run."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return {
        **own,
        COLLECT: str(collected),
        "ANSIBLE_CALLBACKS_ENABLED": "collect" if check else "report,collect",
        "ANSIBLE_STDOUT_CALLBACK": "road",
        # Ansible loads a driver's callbacks from its search path, even if they are not enabled.
        "ANSIBLE_CALLBACK_PLUGINS": str(project_root() / "plugins/callback"),
        "ANSIBLE_CONFIG": str(project_root() / "ansible.cfg"),
        "ANSIBLE_FORCE_COLOR": "0",
    }


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="steps-", dir=constants.DEFAULT_LOCAL_TMP))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _secrets(action: ActionBase, folder: Path) -> Iterator[list[str]]:
    """Yield the arguments with which the inner run reads the passwords of this run."""
    play = action._play_context
    given = context.CLIARGS
    spoken = [
        (
            "--connection-password-file",
            "",
            play.password if given.get("ask_pass") or given.get("connection_password_file") else "",
        )
    ]
    asked = given.get("become_ask_pass") or given.get("become_password_file")
    spoken.append(("--become-password-file", "", play.become_pass if asked else ""))
    spoken += [
        ("--vault-id", f"{name}@", secret.bytes)
        for name, secret in getattr(action._loader._vault, "secrets", None) or ()
    ]
    argv: list[str] = []
    pipes = []
    for number, (flag, label, secret) in enumerate(spoken):
        if secret:
            pipe = folder / f"secret{number}"
            os.mkfifo(pipe, 0o600)
            pipes.append(pipe)
            content = secret if isinstance(secret, bytes) else str(secret).encode()
            threading.Thread(target=_say, args=(pipe, content), daemon=True).start()
            argv += [flag, f"{label}{pipe}"]
    try:
        yield argv
    finally:
        for pipe in pipes:  # unblock writers that still wait for a reader
            with suppress(OSError):
                os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))


def _say(pipe: Path, content: bytes) -> None:
    with suppress(OSError):
        handle = os.open(pipe, os.O_WRONLY)
        try:
            os.write(handle, content + b"\n")
        finally:
            os.close(handle)


def _lines(path: Path) -> Iterator[Taken]:
    with suppress(FileNotFoundError):
        for line in files.read(str(path), most=MOST).splitlines():
            yield json.loads(line)
