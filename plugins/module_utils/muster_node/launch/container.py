"""A launch in a container image: root's podman is the main process of its unit, and starts within the image what runs
there without one, as the training user.

The container is for its files, and no wall: processes, network, shared memory and limits are the node's and the unit's,
so that whoever looks at a launch, or ends it, does so as without an image. All of it stays in the unit's control group.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

from ..tools import files, process
from ..tools.run import run
from . import state

if TYPE_CHECKING:
    import pwd

Json = dict[str, Any]

NAME = "muster-launch-{}"
LABEL = "muster.launch"
SECONDS = 60.0
# podman takes a container without a control group of its own only where its processes have numbers of their own; here
# they keep those of the node, by which ranks are known. A hook of this stage gets what the runtime will be told, and
# says what it is told instead (oci-hooks(5)).
EDIT = (
    "import json, sys; spec = json.load(sys.stdin); linux = spec['linux']; "
    "linux['namespaces'] = [each for each in linux['namespaces'] if each['type'] != 'pid']; json.dump(spec, sys.stdout)"
)
PYTHON = "/usr/bin/python3"
HOOK = {
    "version": "1.0.0",
    "hook": {"path": PYTHON, "args": ["python3", "-I", "-S", "-c", EDIT]},
    "when": {"always": True},
    "stages": ["precreate"],
}
# The only runtime that makes a container without a control group of its own.
RUNTIME = "--runtime=crun"
# No container of a launch gains a privilege, writes into the image, or gets anything from a registry.
CLOSED = (
    *("--rm", "--pull=never", "--cgroups=disabled", "--log-driver=none", "--read-only"),
    *("--cap-drop=all", "--security-opt=no-new-privileges", "--image-volume=ignore", "--http-proxy=false"),
    "--stop-timeout=0",  # nothing of it is left to end where podman is asked to remove one
)
# What it shares with the node.
SHARED = ("--network=host", "--ipc=host", "--uts=host", "--userns=host", "--cgroupns=host", "--ulimit=host")
RDMA = "/dev/infiniband"
CGROUPS = "/sys/fs/cgroup"


def command(spec: Json, user: pwd.struct_passwd, *words: str) -> list[str]:
    """The main process of the launch's unit. words: for the image's Python. spec: see StartRequest."""
    folder = state.state_dir(spec["launch_id"])
    image = spec["image"]
    work = spec["work_dir"] or image["chdir"]
    # Each of these was looked at, or made, where nobody but root could put something else in its place. A working
    # directory within one of them is podman's to find inside, and never root's.
    places = dict.fromkeys(
        filter(None, [folder, spec["run_dir"], spec["work_dir"], spec["cache_root"], *image["folders"]])
    )
    argv = [shutil.which("podman") or "podman", RUNTIME, f"--hooks-dir={hooks(folder)}", "run", *CLOSED, *SHARED]
    argv += [f"--name={NAME.format(spec['launch_id'])}", f"--label={LABEL}={spec['launch_id']}"]
    argv += [*as_user(user), f"--workdir={work}", f"--env={process.LAUNCH_MARK}"]
    argv += [f"--mount=type=bind,src={place},dst={place}" for place in places]
    argv += [f"--mount=type=bind,src={CGROUPS},dst={CGROUPS},ro"]
    argv += ["--device=nvidia.com/gpu=all"] if image["gpus"] else []
    argv += [f"--device={RDMA}"] if os.path.isdir(RDMA) else []
    return [*argv, "--entrypoint=python3", image["id"], *words]


def as_user(user: pwd.struct_passwd) -> list[str]:
    """By numbers, since an image has accounts of its own."""
    groups = sorted(set(os.getgrouplist(user.pw_name, user.pw_gid)) - {user.pw_gid})
    return [f"--user={user.pw_uid}:{user.pw_gid}", *(f"--group-add={group}" for group in groups)]


def hooks(folder: str) -> str:
    """Make the folder with the hook, in the launch's state, and return it."""
    place = f"{folder}/podman"
    files.make_folder(place, mode=0o755)
    files.replace(f"{place}/pids.json", json.dumps(HOOK).encode(), mode=0o644)
    return place


def removal(launch_id: str) -> list[str]:
    """For systemd, behind the end of the unit: what podman could not remove by itself, since it was killed. The first
    attempt may meet a process that ends at this moment, and fail over it; the second one finds it gone."""
    podman = shutil.which("podman") or "podman"
    return 2 * ["--property", f"ExecStopPost=-{podman} rm --force --ignore {NAME.format(launch_id)}"]


def remove_old() -> list[str]:
    """Remove what podman still lists of launches that are over, as behind a loss of power; return their names."""
    said = run("podman", "ps", "--all", f"--filter=label={LABEL}", "--format={{.Names}}", seconds=SECONDS)
    begin = NAME.format("")
    ids = [name.removeprefix(begin) for name in said.text.split() if name.startswith(begin)]
    over = [NAME.format(each) for each in ids if process.LAUNCH_ID.match(each) and state.is_over(each)]
    if over:
        run("podman", "rm", "--force", "--ignore", *over, seconds=SECONDS)
    return over
