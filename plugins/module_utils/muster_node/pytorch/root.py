"""Inspect and change the folder with a node's PyTorch environments."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shutil
import subprocess
import time
from dataclasses import dataclass
from errno import EACCES, ENOENT
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.muster.pytorch import plan as planning
from ansible.module_utils.muster.pytorch.request import TORCH, EnvironmentRequest, is_environment

from ..tools import files
from ..tools.as_user import SilentError, as_user
from ..tools.pack import pack
from ..tools.program import answer_in
from ..tools.result import RefusedError
from ..tools.run import run
from ..tools.trust import foreign_writer
from ..units import torch_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

SYSTEM_CA = Path("/etc/ssl/certs/ca-certificates.crt")
NEW_LINK = ".current.new"
LOOK_TIMEOUT = {"files": 60, "import": 300}
MOST_SAID = 4_000_000  # bytes; packages may print anything when they are imported
MOST_LINE = 200  # characters
USERS_SECONDS = 20.0  # to read every process: a process can block readers of its command line


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no output"])[-1].strip()[:MOST_LINE]


def clean_environment() -> dict[str, str]:
    """Return the module's environment variables, without variables that redirect Python or pip."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return {**kept, "LC_ALL": "C.UTF-8", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}


@dataclass(frozen=True)
class LookedAs:
    """The user that runs the inspection. An import as root would not prove that the training user can import torch."""

    name: str
    entry: pwd.struct_passwd | None

    @classmethod
    def choose(cls, wanted: str) -> LookedAs:
        if os.geteuid() != 0:
            return cls(pwd.getpwuid(os.geteuid()).pw_name, None)
        for name in (wanted, "nobody"):
            with contextlib.suppress(KeyError):
                return cls(name, pwd.getpwnam(name))
        raise RefusedError(f"neither user {wanted} nor user nobody exists to run the inspection")


class PytorchRoot:
    """The folder with the environments.

    package: main package of the environments. option: role option that sets the folder.
    """

    def __init__(self, root: str, look_as: LookedAs, package: str = TORCH, option: str = "pytorch_root") -> None:
        self.package, self.option = package, option
        self.root = Path(root)
        self.envs = self.root / "envs"
        self.link = self.root / "current"
        self.look_as = look_as
        self.looks: dict[str, dict[str, Any]] = {}

    # Reading

    def look(self, environment: Path, depth: str) -> dict[str, Any]:
        """Return what the environment's own Python reports, or {error} if Python fails."""
        done = run(
            *(str(environment / "bin" / "python"), "-I", "-", depth, self.package),
            stdin=pack(torch_facts.__name__),
            seconds=LOOK_TIMEOUT[depth],
            env={"PATH": os.defpath, "LC_ALL": "C.UTF-8", "HOME": "/"},
            user=self.look_as.entry,
            most=MOST_SAID,
        )
        if done.late:
            return {"error": f"its Python did not respond within {LOOK_TIMEOUT[depth]} s"}
        if done.code is None:
            why = os.strerror(ENOENT) if done.missing else done.why.rpartition(": ")[2]
            places = f"Make its Python and {self.option} readable for every user"
            error = f"{self.look_as.name} cannot start its Python: {why}"
            return {"error": error, "fix": places if why == os.strerror(EACCES) else ""}
        answer = answer_in(done.text)
        if answer is None:
            said = f"exit status {done.code}: {last_line(done.aside)}"
            return {"error": f"its Python returned no result ({said})", "trace": done.aside}
        return answer

    def environment(self, name: str) -> planning.Environment:
        look = self.looks[name] = self.look(self.envs / name, "files")
        if "packages" not in look:
            return planning.Environment(faults=(look["error"],))
        return planning.Environment(look["python"], look["packages"], tuple(look["faults"]))

    def observe(self, request: EnvironmentRequest, keep: int) -> planning.Observed:
        link = str(self.link.readlink()) if self.link.is_symlink() else ""
        leads_to = Path(os.path.normpath(self.root / link)) if link else None
        names = self.names()
        current = leads_to.name if leads_to and leads_to.parent == self.envs else ""
        if current not in names:
            current = ""
        looked: dict[str, planning.Environment | None] = dict.fromkeys(names)
        if current:
            looked[current] = self.environment(current)
        observed = planning.Observed(link, current, looked)
        if planning.plan(request, observed, keep).changed:
            # A change is due, so the other environments and their users matter.
            looked |= {name: self.environment(name) for name in names if name != current}
            observed = planning.Observed(link, current, looked, self.in_use())
        return observed

    def names(self) -> list[str]:
        """Return the names of the environments, newest first, without links and without folders of other users."""
        if not self.envs.is_dir():
            return []
        with os.scandir(self.envs) as entries:
            ours = [e for e in entries if e.is_dir(follow_symlinks=False) and is_environment(e.name)]
        return [entry.name for entry in sorted(ours, key=lambda entry: -entry.stat().st_mtime)]

    def in_use(self) -> frozenset[str]:
        """Return the environments that a process runs from, has as its working directory, or has mapped files from. If
        this cannot be determined, return all environments."""
        try:
            return frozenset(as_user(None, self._in_use, seconds=USERS_SECONDS))
        except SilentError:
            return frozenset(self.names())

    def _in_use(self) -> list[str]:
        prefix = f"{self.envs.resolve()}/"
        used: set[str] = set()
        for process in Path("/proc").glob("[0-9]*"):
            texts = []
            # A process may end at any moment, and a kernel thread has no exe.
            with contextlib.suppress(OSError):
                texts.append(f"{(process / 'cwd').readlink()}/")
                texts.append((process / "cmdline").read_text(errors="replace"))
            with contextlib.suppress(OSError):
                texts.append((process / "maps").read_text(errors="replace"))
            for text in texts:
                used.update(part.partition("/")[0] for part in text.split(prefix)[1:])
        return sorted(used)

    # Changing

    def prepare(self) -> None:
        self.refuse_foreign()
        self.envs.mkdir(mode=0o755, parents=True, exist_ok=True)

    def refuse_foreign(self) -> None:
        """Raise an error if other users can write to the folders, because all launches run code from these folders."""
        for path in (self.envs, self.root / "wheels"):
            refuse_foreign(str(path), self.option)

    @contextlib.contextmanager
    def lock(self, timeout: int) -> Iterator[int]:
        """Allow one run at a time. pip inherits the lock, so that after a killed run, the next run waits for pip to
        end."""
        handle = os.open(self.envs, os.O_RDONLY)
        try:
            deadline = time.monotonic() + timeout
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise RefusedError(
                            f"another run has been working in {self.root} for more than {timeout} s",
                            "Wait until that run has ended, or check its pip process on the node",
                        ) from None
                    time.sleep(1)
            yield handle
        finally:
            os.close(handle)

    def remove(self, name: str) -> None:
        shutil.rmtree(self.envs / name)

    def switch(self, name: str) -> None:
        if self.link.exists() and not self.link.is_symlink():
            raise RefusedError(f"{self.link} is not a link", f"Move it, or choose another {self.option}")
        beside = self.root / NEW_LINK
        beside.unlink(missing_ok=True)
        beside.symlink_to(f"envs/{name}")
        beside.replace(self.link)

    def build(self, name: str, python: str, install: Callable[[Path], None], lock: int) -> None:
        """Build a new environment at its final path. Its scripts contain the path, so the environment cannot be moved
        later."""
        path = self.envs / name
        try:
            self.make_venv(path, python, lock)
            install(path)
        except RefusedError:
            # Remove gigabytes of unusable files. They may even be the cause, if the disk is full.
            shutil.rmtree(path, ignore_errors=True)
            raise

    def make_venv(self, path: Path, python: str, lock: int, *options: str) -> None:
        made = self.run([python, "-m", "venv", *options, str(path)], lock)
        if made.returncode != 0:
            raise RefusedError(f"the virtual environment cannot be created ({last_line(made.stdout)})")

    @staticmethod
    def run(command: list[str], lock: int, more: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            env={**clean_environment(), **(more or {})},
            pass_fds=(lock,),
        )


def refuse_foreign(folder: str, option: str) -> None:
    who = foreign_writer(folder)
    if who:
        fix = f"Remove write access of other users (chown root:, chmod go-w), or choose another {option}"
        raise RefusedError(f"{folder} is not safe to use: {who}", fix)


@contextlib.contextmanager
def trusted(environment: Path, extra_ca: str) -> Iterator[dict[str, str]]:
    """Yield the environment variable that points pip to a bundle of the system's and the extra certificates, because
    pip accepts only one bundle."""
    if not extra_ca:
        yield {}
        return
    base = SYSTEM_CA
    if not base.exists():
        base = next(environment.glob("lib/python3*/site-packages/pip/_vendor/certifi/cacert.pem"), base)
    try:
        bundle = base.read_text() + "\n" + Path(extra_ca).read_text()
    except OSError as problem:
        raise RefusedError(
            f"the certificates in {problem.filename} cannot be read ({problem.strerror})",
            "Correct pytorch_extra_ca",
        ) from None
    # Not in /tmp, because a systemd unit may have a private one.
    file = environment / "muster-ca.pem"
    files.replace(str(file), bundle.encode(), mode=0o644)
    yield {"PIP_CERT": str(file)}
    file.unlink()


@dataclass(frozen=True)
class Interpreter:
    """A Python interpreter. version: such as "3.12". ensurepip: path of the module that installs pip in new
    environments; empty if missing."""

    version: str
    machine: str
    ensurepip: str

    @property
    def pip(self) -> Path | None:
        """Return the bundled wheel of pip, from Python itself or from Debian's and Ubuntu's package."""
        folders = (Path(self.ensurepip).parent / "_bundled", Path("/usr/share/python-wheels"))
        return next((wheel for folder in folders for wheel in sorted(folder.glob("pip-*.whl"))), None)


def ask_python(python: str) -> Interpreter:
    """Inspect a Python interpreter. Raises RefusedError if it cannot run, or if other users can change what root would
    run."""
    path = shutil.which(python)
    who = foreign_writer(str(Path(path).absolute())) if path else None
    if who:
        fix = "Set pytorch_python to a Python that only root can change, for example the distribution's python3"
        raise RefusedError(f"{python} is not safe to run as root: {who}", fix)
    question = (
        "import sys, os, importlib.util as u;"
        "spec = u.find_spec('ensurepip');"
        "print('%d.%d' % sys.version_info[:2], os.uname().machine, spec.origin if spec else '', sep='\\n')"
    )
    command = [python, "-I", "-S", "-c", question]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as problem:
        raise RefusedError(f"{python} cannot run ({problem})", "Set pytorch_python to a Python of the node") from None
    return Interpreter(*done.stdout.splitlines())
