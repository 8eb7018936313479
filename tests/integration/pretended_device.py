"""A rented GPU machine, simulated without a GPU: Ubuntu 24.04 with PyTorch, as root, without systemd and network.

The file system is bootstrapped once and cached in .sandbox/two_nodes. The machine runs in its own mount, network, UTS
and PID namespaces on a temporary overlay, which keeps the files of a run until the machine ends.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from muster_controller.sandbox.bases import bootstrap
from paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = ROOT / ".sandbox/two_nodes"
PACKAGES = ("python3", "procps", "ca-certificates")
TORCH = ("torch==2.13.0", "numpy")
ENVIRONMENT = "opt/torch/.venv"
NAME = "device"
PATH = f"/{ENVIRONMENT}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# /repo is a writable copy of the repository; $OUT is /out.
START = """
set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1"/upper "$1"/work "$1"/tree "$1"/treework "$1"/root
mount -t overlay -o lowerdir="$2",upperdir="$1"/upper,workdir="$1"/work device "$1"/root
cd "$1"/root
mount -t proc proc proc
mount -t sysfs sysfs sys
groups=/sys/fs/cgroup # bind mount, because a new mount changes the cgroup v2 options globally
[ "$5" != v2 ] || groups=$(awk '$3 == "cgroup2" {print $2; exit}' /proc/mounts)
mount --rbind "$groups" sys/fs/cgroup
mount --rbind /dev dev
mkdir -p repo out
mount -t overlay -o lowerdir="$3",upperdir="$1"/tree,workdir="$1"/treework repo repo
mount --bind "$4" out
mkdir .old
pivot_root . .old
umount -l /.old
rmdir /.old
cd /
hostname device
exec python3 -S -c '
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # reap orphans
print("started", flush=True)
signal.pause()'
"""


class Device(NamedTuple):
    """holder: PID of the machine's first process."""

    holder: int

    def argv(self, *command: str) -> list[str]:
        environment = ["env", "-C", "/repo", "-i", "HOME=/root", f"PATH={PATH}", "OUT=/out"]
        enter = ["nsenter", f"--target={self.holder}", "--mount", "--net", "--uts", "--pid", "--root"]
        return [*enter, *environment, *command]

    def run(self, *command: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        argv = self.argv(*command)
        return subprocess.run(
            argv, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout
        )


def recipe() -> str:
    return f"{PACKAGES} {TORCH} {sys.version}"


def make_root() -> Path:
    """Return the root folder. Build it if it is missing or was built from another recipe."""
    root, stamp = FOLDER / "root", FOLDER / "recipe"
    if stamp.is_file() and stamp.read_text() == recipe():
        return root
    shutil.rmtree(FOLDER, ignore_errors=True)
    (FOLDER / "context").mkdir(parents=True)
    (FOLDER / "context/apt.conf").touch()
    archive = bootstrap(FOLDER, "ubuntu24.04", "", PACKAGES)
    root.mkdir()
    subprocess.run(["tar", "--extract", "--numeric-owner", f"--file={archive}", f"--directory={root}"], check=True)
    archive.unlink()
    install_torch(root)
    stamp.write_text(recipe())
    return root


def install_torch(root: Path) -> None:
    """Install PyTorch in an environment with a copy of the Python that runs these tests."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    own = root / "opt/python"
    (own / "bin").mkdir(parents=True)
    shutil.copy(Path(sys.executable).resolve(), own / "bin/python3")
    without = shutil.ignore_patterns("site-packages", "dist-packages", "test", "__pycache__")
    shutil.copytree(sysconfig.get_path("stdlib"), own / "lib" / version, ignore=without)
    shared = Path(sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("LDLIBRARY"))
    if shared.suffix != ".a":
        shutil.copy(shared, root / "usr/local/lib" / sysconfig.get_config_var("INSTSONAME"))
        subprocess.run(["chroot", str(root), "ldconfig"], check=True, env={"PATH": PATH})
    made = ["chroot", str(root), "/opt/python/bin/python3", "-m", "venv", "--without-pip", f"/{ENVIRONMENT}"]
    subprocess.run(made, check=True, env={"PATH": PATH})
    packages = root / ENVIRONMENT / "lib" / version / "site-packages"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--target", str(packages), *TORCH]
    subprocess.run(pip, check=True)
    torchrun = root / ENVIRONMENT / "bin/torchrun"
    torchrun.write_text(
        f"#!/{ENVIRONMENT}/bin/python3\nimport sys\nfrom torch.distributed.run import main\nsys.exit(main())\n"
    )
    torchrun.chmod(0o755)


@contextmanager
def device(out: Path, *, v2_alone: bool = False) -> Iterator[Device]:
    """Run the machine for the duration of the block. out: folder that becomes $OUT. v2_alone: only with cgroup v2."""
    work = FOLDER / "mounted"
    work.mkdir(exist_ok=True)
    # The machine ends with the test process, even if that is killed.
    namespaces = [
        "setpriv",
        "--pdeathsig=KILL",
        "unshare",
        "--mount",
        "--net",
        "--uts",
        "--pid",
        "--fork",
        "--kill-child",
        "--propagation=private",
    ]
    words = ["sh", "-c", START, "sh", str(work), str(FOLDER / "root"), str(ROOT), str(out)]
    words.append("v2" if v2_alone else "")
    with subprocess.Popen([*namespaces, *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            machine = Device(int(children[0]))
            assert machine.run("cat", "/proc/1/comm").stdout == "python3\n"
            yield machine
        finally:
            process.kill()
