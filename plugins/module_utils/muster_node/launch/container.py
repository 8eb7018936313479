"""Run a launch in a container image. Root's podman is the main process of the unit, and starts the launch's program in
the image as the training user.

The container provides files but no isolation: it shares the processes, network, shared memory and limits of the node
and the unit. Therefore a launch is inspected and stopped in the same way as without an image. All processes stay in the
unit's control group.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

from ..tools import files, process, trust
from ..tools.run import run
from . import state

if TYPE_CHECKING:
    import pwd
    from collections.abc import Sequence

Json = dict[str, Any]

NAME = "muster-launch-{}"
LABEL = "muster.launch"
SECONDS = 60.0
# A precreate hook receives the runtime's configuration as podman computed it, the image's part included, and returns
# the one that is used (oci-hooks(5)).
# - User and groups are set by number. podman resolves --group-add=44 in the image's /etc/group, by name first: a line
#   "44:x:6:" there selects group 6.
# - Annotations are removed. podman 4.3 adds those of the image, and crun acts on some as root (run.oci.* in crun(1)).
#   null clears them even if podman merges the answer into its configuration; {} would not.
# - Namespaces in "shared" are removed. podman accepts --cgroups=disabled only with a process namespace; a launch needs
#   none, since its ranks are identified by the node's process ids.
EDIT = (
    "import json, sys; spec, wanted = json.load(sys.stdin), json.loads(sys.argv[1]); linux = spec['linux']; "
    "linux['namespaces'] = [each for each in linux['namespaces'] if each['type'] not in wanted['shared']]; "
    "spec['process']['user'].update(wanted['user']); spec['annotations'] = None; json.dump(spec, sys.stdout)"
)
PYTHON = "/usr/bin/python3"
# The only runtime that creates a container without a separate control group.
RUNTIME = "--runtime=crun"
# No container gains privileges, writes to the image, or downloads from a registry.
CLOSED = (
    *("--rm", "--pull=never", "--cgroups=disabled", "--log-driver=none", "--read-only"),
    *("--cap-drop=all", "--security-opt=no-new-privileges", "--image-volume=ignore", "--http-proxy=false"),
    "--no-healthcheck",  # a timer of root would run the image's health check, outside the unit
    "--stop-timeout=0",  # its processes have already ended when podman removes a container
)
# Shared with the node.
SHARED = ("--network=host", "--ipc=host", "--uts=host", "--userns=host", "--cgroupns=host", "--ulimit=host")
RDMA = "/dev/infiniband"
CGROUPS = "/sys/fs/cgroup"


def command(spec: Json, user: pwd.struct_passwd, *words: str) -> list[str]:
    """Return the command of the unit's main process. words: arguments for the image's Python. spec: see
    StartRequest."""
    folder = state.state_dir(spec["launch_id"])
    image = spec["image"]
    work = spec["work_dir"] or image["chdir"]
    # Each of these folders was checked or created where only root can replace it. A working directory within one of
    # them is resolved by podman in the container, never by root.
    places = dict.fromkeys(
        filter(None, [folder, spec["run_dir"], spec["work_dir"], spec["cache_root"], *image["folders"]])
    )
    argv = [*engine(f"{folder}/podman", user, shared=("pid",)), *SHARED]
    argv += [f"--name={NAME.format(spec['launch_id'])}", f"--label={LABEL}={spec['launch_id']}"]
    argv += [f"--workdir={work}", f"--env={process.LAUNCH_MARK}"]
    argv += [f"--mount=type=bind,src={place},dst={place}" for place in places]
    argv += [f"--mount=type=bind,src={CGROUPS},dst={CGROUPS},ro"]
    argv += ["--device=nvidia.com/gpu=all"] if image["gpus"] else []
    argv += [f"--device={RDMA}"] if os.path.isdir(RDMA) else []
    return [*argv, "--entrypoint=python3", image["id"], *words]


def engine(hooks: str, user: pwd.struct_passwd, shared: Sequence[str] = ()) -> list[str]:
    """Return the common arguments of `podman run`. hooks: the folder with the OCI hook; podman uses no hooks from other
    folders. shared: see write_hook."""
    write_hook(hooks, user, shared)
    podman = shutil.which("podman") or "podman"
    return [podman, RUNTIME, f"--hooks-dir={hooks}", "run", *CLOSED, f"--user={user.pw_uid}:{user.pw_gid}"]


def write_hook(folder: str, user: pwd.struct_passwd, shared: Sequence[str]) -> None:
    """Write the OCI hook. shared: namespaces of the node that the container shares."""
    groups = sorted(set(os.getgrouplist(user.pw_name, user.pw_gid)))
    identity = {"uid": user.pw_uid, "gid": user.pw_gid, "additionalGids": groups}
    wanted = json.dumps({"user": identity, "shared": list(shared)})
    hook = {
        "version": "1.0.0",
        "hook": {"path": PYTHON, "args": ["python3", "-I", "-S", "-c", EDIT, wanted]},
        "when": {"always": True},
        "stages": ["precreate"],
    }
    trust.make_folder(folder)
    files.replace(f"{folder}/muster.json", json.dumps(hook).encode(), mode=0o644)


def removal(launch_id: str) -> list[str]:
    """Return unit properties that make systemd remove the container after the unit has ended, in case podman itself was
    killed. The first removal can fail while a process is ending; the second removal then succeeds."""
    podman = shutil.which("podman") or "podman"
    return 2 * ["--property", f"ExecStopPost=-{podman} rm --force --ignore {NAME.format(launch_id)}"]


def remove_old() -> list[str]:
    """Remove containers of finished launches that podman still lists, for example after a power loss. Return their
    names."""
    said = run("podman", "ps", "--all", f"--filter=label={LABEL}", "--format={{.Names}}", seconds=SECONDS)
    begin = NAME.format("")
    ids = [name.removeprefix(begin) for name in said.text.split() if name.startswith(begin)]
    over = [NAME.format(each) for each in ids if process.LAUNCH_ID.match(each) and state.is_over(each)]
    if over:
        run("podman", "rm", "--force", "--ignore", *over, seconds=SECONDS)
    return over
