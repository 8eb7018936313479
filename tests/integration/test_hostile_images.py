"""Launches in hostile container images. Each attack first succeeds in a plain `podman run` of the same image."""

from __future__ import annotations

import base64
import shlex
import struct
import tarfile
from typing import TYPE_CHECKING

import pytest

from drill import Drill, failures
from hostile_images import Given, Hostile, small_system, write
from images import containers, give_podman, take_podman
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from machines import Machine, Play

NODE = "node1"
SHOWN = "/srv/muster-test-hostile"
GROUP = ("video", 44)  # a supplementary group of the training user
SHADOW = 42  # the group that may read /etc/shadow
MINE = "localhost/mine:1"
OTHERS = "localhost/others:1"  # a name of another image
MADE_BY_ROOT = "/etc/muster-test-hostile"
HOOKS = "/usr/share/containers/oci/hooks.d"
PLAIN = ("podman", "--runtime=crun", "run", "--rm", "--cgroups=disabled", "--log-driver=none", "--network=host")
SCRIPT = """
import os, sys, time
try:
    print("priority is", os.getpriority(os.PRIO_PROCESS, 0), flush=True)
except OSError as problem:
    print("priority is", problem.errno, flush=True)
print("pid is", os.getpid(), flush=True)
while not os.path.exists(sys.argv[1].partition("=")[2]):
    time.sleep(0.05)
"""
# A seccomp filter that makes getpriority (140 on x86-64) fail with 77 and allows everything else.
ERROR = 77
FILTER = ((0x20, 0, 0, 0), (0x15, 0, 1, 140), (0x06, 0, 0, 0x00050000 | ERROR), (0x06, 0, 0, 0x7FFF0000))
SECCOMP = base64.b64encode(b"".join(struct.pack("HBBI", *one) for one in FILTER)).decode()


def accounts(uid: int) -> dict[str, Given]:
    """Return account files in which the name of an entry equals the id of another entry."""
    passwd = f"root:x:0:0::/:/bin/sh\n{uid}:x:0:0::/evil:/bin/sh\nevil:x:{uid}:0::/evil:/bin/sh\n"
    group = f"root:x:0:\n{GROUP[1]}:x:{SHADOW}:\n{uid}:x:6:\n"
    return {"etc/passwd": Given(passwd.encode()), "etc/group": Given(group.encode())}


CONFIG = {
    "Healthcheck": {"Test": ["CMD-SHELL", "id"], "Interval": 1_000_000_000},
    "Entrypoint": ["/bin/false"],
    "Env": ["PATH=/usr/bin:/bin", "LD_PRELOAD=/evil.so", "HOME=/evil", "MUSTER_LAUNCH_ID=evil"],
    "ExposedPorts": {"22/tcp": {}},
    "Labels": {"muster.launch": "evil", "io.containers.capabilities": "SYS_ADMIN", "run.oci.handler": "krun"},
    "OnBuild": ["RUN false"],
    "StopSignal": "SIGSTOP",
    "User": "0",
    "Volumes": {"/evil": {}, "/var/lib/muster/work": {}},
    "WorkingDir": "/var/lib/muster/work",
}
ANNOTATIONS = {
    "run.oci.hooks.stdout": MADE_BY_ROOT,
    "run.oci.hooks.stderr": MADE_BY_ROOT,
    "run.oci.seccomp_bpf_data": SECCOMP,
    "run.oci.keep_original_groups": "1",
}


@pytest.fixture(scope="module")
def node(with_pytorch: None, networked: list[Machine], play: Play) -> Iterator[Machine]:
    """Yield a node with podman, whose training user has a supplementary group."""
    (machine,) = [each for each in networked if each.name == NODE]
    made = play("playbooks/baseline.yml", extravars={"node_baseline_podman": True}, limit=NODE)
    assert made.rc == 0, made.stdout
    give_podman(machine)
    machine.inside("install", "-d", "-m", "0755", SHOWN)
    machine.inside("usermod", "--append", "--groups", GROUP[0], "muster")
    yield machine
    machine.inside("gpasswd", "--delete", "muster", GROUP[0])
    take_podman(machine)
    machine.inside("rm", "-rf", SHOWN)


@pytest.fixture(scope="module")
def system(node: Machine) -> bytes:
    return small_system(node)


@pytest.fixture
def drill(node: Machine, tmp_path: Path) -> Iterator[Drill]:
    """Yield a launch without PyTorch. Tests set its image."""
    (tmp_path / "hold.py").write_text(SCRIPT)
    given = {
        "launch_image_folders": [SHOWN],
        "launch_script_src": str(tmp_path / "hold.py"),
        "launch_command": ["python3", "{script}"],
        "cluster_launch_nodes": [NODE],
        "cluster_nproc_per_node": 1,
        "launch_silence_timeout": 60,  # a busy machine is no reason to fail
    }
    drill = Drill(tmp_path, given, gate=f"{SHOWN}/gate")
    yield drill
    if drill.run.is_dir() and drill.runs():
        node.inside("systemctl", "stop", drill.unit(), check=False)
    node.inside("rm", "-f", drill.gate, MADE_BY_ROOT)
    node.inside("podman", "rmi", "--all", "--force")


def archive(drill: Drill, system: bytes, image: Hostile) -> tuple[Path, str]:
    """Write the image archive of the launch. Return its path and the image id."""
    path = drill.folder / "hostile.tar"
    found = write(path, system, image)
    drill.variables["launch_image"] = str(path)
    return path, found


def load_plainly(node: Machine, path: Path) -> None:
    """Load an archive with its image names, as an administrator does."""
    node.podman_copy(path, "/var/tmp/muster-test-hostile.tar")
    node.inside("podman", "load", "--quiet", "--input=/var/tmp/muster-test-hostile.tar")
    node.inside("rm", "-f", "/var/tmp/muster-test-hostile.tar")


def names(node: Machine) -> set[str]:
    shown = node.inside("podman", "images", "--no-trunc", "--format={{.Repository}}:{{.Tag}} {{.Id}}").stdout
    return {line.replace("sha256:", "") for line in shown.splitlines() if "<none>" not in line}


def timers(node: Machine) -> set[str]:
    return {
        line.split()[-2] for line in node.inside("systemctl", "list-timers", "--all", "--no-legend").stdout.splitlines()
    }


def begun(drill: Drill, node: Machine) -> tuple[str, dict[str, str]]:
    """Start the launch. Return the output of its script, and /proc/PID/status of the script on the node."""
    drill.begin()

    def output() -> str:
        assert drill.is_running(), drill.runner.stdout.read()
        log = drill.run / f"logs/{NODE}/command.log"
        text = log.read_text() if log.exists() else ""
        return text if "pid is " in text else ""

    text = until(output, PATIENCE, "the script runs")
    pid = text.partition("pid is ")[2].split()[0]
    shown = node.inside("cat", f"/proc/{pid}/status").stdout
    return text, dict(line.split(":\t", 1) for line in shown.splitlines() if ":\t" in line)


def training_user_runs(node: Machine, status: dict[str, str]) -> None:
    def ids(which: str) -> list[str]:
        return node.inside("id", which, "muster").stdout.split()

    assert status["Uid"].split() == 4 * ids("--user")
    assert status["Gid"].split() == 4 * ids("--group")
    assert sorted(status["Groups"].split()) == sorted(ids("--groups"))
    assert str(GROUP[1]) in status["Groups"].split()
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


def test_accounts_settings_and_names_of_an_image_have_no_effect(drill: Drill, node: Machine, system: bytes) -> None:
    uid = int(node.inside("id", "--user", "muster").stdout)
    links = {"var/lib/muster": Given(kind=tarfile.SYMTYPE, target="/etc")}
    path, found = archive(drill, system, Hostile({**accounts(uid), **links}, CONFIG, (OTHERS, MINE)))

    load_plainly(node, path)
    assert {f"{OTHERS} {found}", f"{MINE} {found}"} <= names(node)
    as_user = (f"--user={uid}:{uid}", f"--group-add={GROUP[1]}", "--entrypoint=id")
    assert f"groups={uid}" in node.inside(*PLAIN, *as_user, MINE).stdout
    assert str(SHADOW) in node.inside(*PLAIN, *as_user, MINE, "-G").stdout.split()
    others = timers(node)
    sleeping = node.inside(*PLAIN, "--detach", "--user=0", "--entrypoint=sleep", MINE, "1000").stdout.strip()
    assert f"{sleeping}.timer" in timers(node)
    node.inside("podman", "rm", "--force", "--time=0", sleeping)
    assert timers(node) == others
    node.inside("podman", "rmi", "--all", "--force")

    write(drill.folder / "theirs.tar", system, Hostile())
    load_plainly(node, drill.folder / "theirs.tar")
    theirs = node.inside("podman", "images", "--no-trunc", "--quiet").stdout.strip().removeprefix("sha256:")
    node.inside("podman", "tag", theirs, OTHERS)

    _, status = begun(drill, node)
    training_user_runs(node, status)
    assert timers(node) == others
    assert names(node) == {f"{OTHERS} {theirs}", f"localhost/muster-image:{found[:12]} {found}"}
    assert node.inside("podman", "ps", "--format={{.Names}}").stdout.split() == [f"muster-launch-{drill.launch_id}"]
    assert node.inside("find", "/etc/launches", "/etc/work", "/evil", check=False).stdout == ""
    drill.open_gate(node)
    assert failures(drill.end()) == []
    drill.check_nothing_left(node)
    assert containers(node) == ""
    node.inside("podman", "image", "prune", "--force")
    assert f"localhost/muster-image:{found[:12]} {found}" in names(node)


def test_annotations_of_an_image_do_not_control_the_runtime(drill: Drill, node: Machine, system: bytes) -> None:
    path, found = archive(drill, system, Hostile(names=(OTHERS,), annotations=ANNOTATIONS))
    hook = '{"version": "1.0.0", "hook": {"path": "/bin/cat"}, "when": {"always": true}, "stages": ["createRuntime"]}'
    node.inside("sh", "-ec", f"mkdir -p {HOOKS}; printf '%s' '{hook}' >{HOOKS}/muster-test.json")
    try:
        load_plainly(node, path)
        script = "import os; os.getpriority(os.PRIO_PROCESS, 0)"
        failed = node.inside(*PLAIN, "--entrypoint=python3", OTHERS, "-c", script, check=False)
        assert f"[Errno {ERROR}]" in failed.stderr
        assert node.inside("stat", "--format=%U", MADE_BY_ROOT).stdout == "root\n"
        node.inside("rm", MADE_BY_ROOT)
        node.inside("podman", "rmi", "--all", "--force")

        text, status = begun(drill, node)
        assert "priority is 0\n" in text
        training_user_runs(node, status)
        drill.open_gate(node)
        assert failures(drill.end()) == []
    finally:
        node.inside("rm", "-f", f"{HOOKS}/muster-test.json")
    assert node.inside("test", "-e", MADE_BY_ROOT, check=False).returncode == 1
    assert names(node) == {f"localhost/muster-image:{found[:12]} {found}"}


def refused(drill: Drill, node: Machine) -> str:
    """Check that the launch is refused. Return the reason."""
    drill.begin()
    drill.wait()
    shown = str(drill.runner.stdout.read())
    (found,) = [one for one in drill.result()["verdict"]["findings"] if one["status"] == "fail"]
    assert (found["id"], found["node"]) == ("launch.image", NODE)
    assert "\x1b[2J" not in shown
    assert "\x1b]" not in shown
    assert not drill.runs()
    assert containers(node) == ""
    return str(found["summary"])


def test_image_with_a_device_file_is_refused(drill: Drill, node: Machine, system: bytes) -> None:
    device = Given(mode=0o666, kind=tarfile.CHRTYPE, number=(1, 5))  # like /dev/zero
    path, _ = archive(drill, system, Hostile({"usr/lib/device": device}, names=(MINE,)))
    load_plainly(node, path)
    script = "print(open('/usr/lib/device', 'rb').read(4))"
    opened = node.inside(
        *PLAIN, "--read-only", "--cap-drop=all", "--user=1234", "--entrypoint=python3", MINE, "-c", script
    )
    assert opened.stdout == "b'\\x00\\x00\\x00\\x00'\n"
    why = "the image is not safe to run: the device file '/usr/lib/device' would give access"
    assert why in refused(drill, node)


ESCAPES = r"""#!/bin/sh
printf '{"python": [3, 12, 3], "torch": "2.13.0\\u001b[2J\\u001b]0;evil\\u0007\\nREADY", "nccl": ""}\n'
"""
COMPLAINS = r"""#!/bin/sh
printf '\033[2Jfix: run this\n' >&2
exit 1
"""
STAYS = """#!/bin/sh
echo stays
sleep 314159 & sleep 314159
"""
FLOODS = """#!/bin/sh
while :; do echo 'READY'; done
"""


@pytest.mark.parametrize(
    ("python", "prints", "says"),
    [
        pytest.param(
            ESCAPES,
            r"\u001b[2J",
            r"""unexpected output of Python: '{"python": [3, 12, 3], "torch": "2.13.0\\u001b[2J""",
            id="escapes",
        ),
        pytest.param(COMPLAINS, "\x1b[2J", r"exited with code 1, output: '\x1b[2Jfix: run this'", id="complains"),
        pytest.param(STAYS, "stays", "Python does not run in the image: ", id="stays", marks=pytest.mark.slow),
        pytest.param(
            FLOODS, "READY\nREADY\n", "Python does not run in the image: ", id="floods", marks=pytest.mark.slow
        ),
    ],
)
def test_output_of_a_hostile_python_is_quoted_and_limited(
    python: str, prints: str, says: str, drill: Drill, node: Machine, system: bytes
) -> None:
    path, _ = archive(drill, system, Hostile({"usr/bin/python3": Given(python.encode(), 0o755)}, names=(MINE,)))
    load_plainly(node, path)
    argv = ["timeout", "--signal=KILL", "5", *PLAIN, "--name=muster-test-lies", "--entrypoint=python3", MINE]
    assert prints in node.inside("sh", "-c", f"{shlex.join(argv)} 2>&1 | head --bytes=1000").stdout
    node.inside("podman", "rm", "--force", "--ignore", "--time=0", "muster-test-lies")
    assert says in refused(drill, node)
    assert node.inside("pgrep", "-f", "^sleep 314159", check=False).stdout == ""
