"""Components that are installed beside the driver on a simulated GPU node. docker and make are stubs."""

from __future__ import annotations

import hashlib
import tarfile
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpu_node import inside, put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpu_cluster import GpuCluster
    from machines import Machine, Result

PROGRAMS = Path(__file__).parents[1] / "standins/programs"
ROLES = {"cuda_toolkit", "nccl", "container_toolkit", "dcgm"}
USER = "muster"
DOCKER_UNIT = """\
[Unit]
Description=docker (stub)
[Service]
ExecStart=/usr/local/bin/dockerd
ExecReload=/bin/kill -s HUP $MAINPID
[Install]
WantedBy=multi-user.target
"""
DAEMON = '{"log-driver": "journald", "data-root": "/srv/docker"}\n'
RUNFILE = "/usr/local/cuda-12.4/bin/nvcc"
HELD = {
    "libnccl2",
    "libnccl-dev",
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
    "datacenter-gpu-manager-4-core",
    "datacenter-gpu-manager-4-cuda13",
}


@pytest.fixture(scope="module")
def node(gpu_cluster: GpuCluster) -> Iterator[Machine]:
    """Yield the first node with a docker that runs a container, a toolkit from a runfile, and the training user."""
    machine = gpu_cluster.nodes[0]
    there = packages(machine)
    for name in ("docker", "dockerd"):
        put(machine.container, f"/usr/local/bin/{name}", (PROGRAMS / "docker.py").read_bytes(), "0755")
    put(machine.container, "/usr/bin/make", (PROGRAMS / "make").read_bytes(), "0755")
    put(machine.container, "/etc/systemd/system/docker.service", DOCKER_UNIT)
    put(machine.container, "/etc/docker/daemon.json", DAEMON)
    put(machine.container, RUNFILE, "#!/bin/sh\necho 'release 12.4, V12.4.131 (stub)'\n", "0755")
    inside(
        machine.container,
        f"""
        id {USER} 2>/dev/null || useradd --create-home {USER}
        echo web >/run/standin/containers
        systemctl daemon-reload
        systemctl start docker
        """,
    )
    yield machine
    # Restore the node for other tests: driver only.
    new = " ".join(set(packages(machine)) - set(there))
    inside(
        machine.container,
        f"""
        systemctl stop docker
        apt-mark unhold {" ".join(HELD)} >/dev/null 2>&1 || true
        dpkg --purge --force-depends {new} >/dev/null
        rm -rf /usr/local/bin/docker* /usr/bin/make /etc/systemd/system/docker.service /etc/docker /usr/local/cuda*
        rm -rf /var/lib/muster/nccl-tests /etc/nccl.conf /etc/apt/preferences.d/muster-container-toolkit-version
        systemctl daemon-reload
        """,
    )


@pytest.fixture(scope="module")
def requested(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    source = tmp_path_factory.mktemp("source") / "nccl-tests.tar.gz"
    with tarfile.open(source, "w:gz") as archive:
        text = b"# A stub of Muster's tests\n"
        entry = tarfile.TarInfo("nccl-tests-2.19.6/Makefile")
        entry.size = len(text)
        archive.addfile(entry, BytesIO(text))
    return {
        "cuda_toolkit_versions": ["12.4", "12.8", "13.0"],
        "cuda_toolkit_default": "12.8",
        "nccl_install": True,
        "nccl_tests_version": "2.19.6",
        "nccl_tests_source": str(source),
        "nccl_tests_sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
        "container_toolkit_engine": "docker",
        "dcgm_install": True,
    }


@pytest.fixture(scope="module")
def apply(gpu_cluster: GpuCluster, node: Machine) -> Callable[..., Result]:
    """Return a function that runs the GPU stack playbook on the first node."""

    def run(*, check: bool = False, **extravars: Any) -> Result:
        return gpu_cluster.play(limit="node1", check=check, extravars=extravars)

    return run


@pytest.fixture(scope="module")
def before(node: Machine, apply: Callable[..., Result], requested: dict[str, Any]) -> dict[str, Any]:
    """Return the initial state and the result of check mode."""
    there = {"packages": packages(node), "docker": of_unit(node, "docker.service", "MainPID")}
    planned = apply(check=True, **requested)
    assert planned.rc == 0, planned.stdout
    assert packages(node) == there["packages"]
    return {**there, "planned": planned}


@pytest.fixture(scope="module")
def applied(before: dict[str, Any], apply: Callable[..., Result], requested: dict[str, Any]) -> Result:
    result = apply(**requested)
    assert result.rc == 0, result.stdout
    return result


def packages(machine: Machine) -> dict[str, str]:
    """Return every installed package with its version."""
    show = "--showformat=${Package} ${Version} ${db:Status-Status}\\n"
    lines = [line.split() for line in machine.inside("dpkg-query", "--show", show).stdout.splitlines()]
    return {name: version for name, version, status in lines if status == "installed"}


def of_unit(machine: Machine, unit: str, name: str) -> str:
    return machine.inside("systemctl", "show", "--value", f"--property={name}", unit).stdout.strip()


def changed_tasks(result: Result) -> list[str]:
    return [entry.partition(": ")[2] for entry in result.changed]


def test_check_mode_reports_the_planned_components(before: dict[str, Any]) -> None:
    planned: Result = before["planned"]
    assert planned.changing_roles("node1") >= ROLES
    assert "+package libnccl2: 2.29.7-1+cuda13.2" in planned.stdout
    assert "+nvidia-ctk runtime configure --runtime=docker" in planned.stdout
    assert "+/usr/local/cuda-12.8" in planned.stdout


def test_second_run_changes_nothing(applied: Result, apply: Callable[..., Result], requested: dict[str, Any]) -> None:
    again = apply(**requested)
    assert again.rc == 0, again.stdout
    assert again.changed == []


def test_toolkits_coexist_without_a_driver(applied: Result, node: Machine, before: dict[str, Any]) -> None:
    for version in ("12.4", "12.8", "13.0"):
        assert f"release {version}" in node.inside(f"/usr/local/cuda-{version}/bin/nvcc", "--version").stdout
    assert node.inside("readlink", "-f", "/usr/local/cuda").stdout.strip() == "/usr/local/cuda-12.8"
    new = {name for name in packages(node) if name not in before["packages"]}
    assert "cuda-toolkit-12-8" in new
    # The runfile's toolkit is kept: no package was unpacked over it.
    assert "cuda-toolkit-12-4" not in new
    assert (
        not {name for name in new if name.startswith(("nvidia-driver", "nvidia-open", "cuda-drivers", "libnvidia-c"))}
        - HELD
    )
    notes = applied.results("Check the CUDA toolkits")["node1"]["notes"]
    text = "cuda-12.4 was installed without a package (usually from a runfile) and is used unchanged"
    assert any(text in note for note in notes)


def test_components_are_held_at_one_version(applied: Result, node: Machine) -> None:
    there = packages(node)
    assert there["libnccl2"] == there["libnccl-dev"] == "2.29.7-1+cuda13.2"
    assert {there[name] for name in HELD if "container" in name} == {"1.20.1-1"}
    assert {there[name] for name in HELD if name.startswith("datacenter")} == {"1:4.7.0-1"}
    assert set(node.inside("apt-mark", "showhold").stdout.split()) >= HELD
    # The repositories have a newer version for a newer CUDA.
    assert "2.32.3" in node.inside("apt-cache", "madison", "libnccl2").stdout
    moved = node.inside("apt-get", "--simulate", "dist-upgrade").stdout
    assert not [line for line in moved.splitlines() if line.startswith("Inst ") and line.split()[1] in HELD]


def test_docker_gets_the_runtime_without_a_restart(applied: Result, node: Machine, before: dict[str, Any]) -> None:
    assert '"nvidia"' in node.inside("docker", "info").stdout
    assert of_unit(node, "docker.service", "MainPID") == before["docker"]
    settings = node.inside("cat", "/etc/docker/daemon.json").stdout
    assert '"data-root": "/srv/docker"' in settings
    assert '"log-driver": "journald"' in settings


def test_nccl_tests_are_built_without_privileges(applied: Result, node: Machine, requested: dict[str, Any]) -> None:
    folder = applied.results("Build nccl-tests (some minutes)")["node1"]["folder"]
    # The newest toolkit of NCCL's CUDA version, although the default is another.
    assert folder.endswith(f"2.19.6_cuda13.0_nccl2.29.7_{requested['nccl_tests_sha256'][:8]}/build")
    said = node.inside(f"{folder}/all_reduce_perf").stdout
    assert said.startswith(f"stub, built by {USER} with")
    assert "release 13.0" in said
    assert node.inside("stat", "--format=%U", f"{folder}/all_reduce_perf").stdout.strip() == USER


def test_dcgm_runs_and_node_without_fabric_has_no_nccl_conf(applied: Result, node: Machine) -> None:
    assert of_unit(node, "nvidia-dcgm.service", "ActiveState") == "active"
    assert of_unit(node, "nvidia-dcgm.service", "UnitFileState") == "enabled"
    assert node.inside("test", "-e", "/etc/nccl.conf", check=False).returncode == 1


def test_interrupted_run_is_completed(
    applied: Result, node: Machine, apply: Callable[..., Result], requested: dict[str, Any]
) -> None:
    # State after runs killed between a package and its hold, a file and its reload, a build and its rename.
    inside(
        node.container,
        """
        apt-mark unhold libnccl2 nvidia-container-toolkit >/dev/null
        echo '{"Runtimes": {"runc": {}}}' >/run/standin/docker.json
        systemctl -q disable --now nvidia-dcgm
        cd /var/lib/muster/nccl-tests
        for folder in *_nccl*/; do mv $folder ${folder%/}.half; done
        update-alternatives --set cuda /usr/local/cuda-13.0 >/dev/null
        """,
    )
    result = apply(**requested)
    assert result.rc == 0, result.stdout
    assert changed_tasks(result) == [
        "Set the default CUDA toolkit",
        "Hold the packages at this version",
        "Build nccl-tests (some minutes)",
        "Hold the packages at this version",
        "Configure the container engine",
        "Start the DCGM service",
    ]
    assert node.inside("sh", "-c", "ls -d /var/lib/muster/nccl-tests/*.half", check=False).stdout == ""


@pytest.mark.slow
def test_verify_reports_differences_and_changes_nothing(
    applied: Result, node: Machine, apply: Callable[..., Result], requested: dict[str, Any]
) -> None:
    modes = {f"{role}_mode": "verify" for role in ROLES}
    assert apply(**requested, **modes).changed == []
    node.inside("mv", "/usr/local/cuda-13.0/bin/nvcc", "/run/nvcc")
    result = apply(**requested, **modes)
    node.inside("mv", "/run/nvcc", "/usr/local/cuda-13.0/bin/nvcc")
    assert result.rc != 0
    message = result.results("Check the CUDA toolkits")["node1"]["msg"]
    assert message.startswith(
        "node1: /usr/local/cuda-13.0/bin/nvcc failed (/usr/local/cuda-13.0/bin/nvcc is not there)"
    )
    assert "cuda_toolkit_mode=manage" in message
    assert result.changed == []


@pytest.mark.slow
def test_docker_that_ignores_the_reload_is_not_restarted(
    applied: Result, node: Machine, apply: Callable[..., Result], before: dict[str, Any]
) -> None:
    inside(node.container, 'echo \'{"Runtimes": {"runc": {}}}\' >/run/standin/docker.json; touch /run/standin/deaf')
    result = apply(container_toolkit_engine="docker")
    inside(node.container, "rm /run/standin/deaf; systemctl reload docker")
    assert result.rc != 0
    message = result.results("Configure the container engine")["node1"]["msg"]
    assert message.startswith("node1: docker reloaded its configuration but did not load the nvidia runtime.")
    assert message.endswith("sudo systemctl restart docker (this stops the containers web).")
    assert of_unit(node, "docker.service", "MainPID") == before["docker"]


def test_nccl_conf_names_the_training_interface(applied: Result, node: Machine, apply: Callable[..., Result]) -> None:
    theirs = "# of the site\nNCCL_IB_TC=106\nNCCL_DEBUG=INFO\n"
    put(node.container, "/etc/nccl.conf", theirs)
    inside(
        node.container,
        """
        ip link add other type veth peer name end
        ip addr add 10.9.9.1/24 dev other
        ip link set other up
        ip link set end up
        """,
    )
    try:
        result = apply(nccl_install=True)
    finally:
        node.inside("ip", "link", "delete", "other")
    assert result.rc == 0, result.stdout
    assert changed_tasks(result) == ["Write the NCCL settings"]
    interface = node.inside("sh", "-c", "ip -brief -4 addr show scope global | sed 's/@.*//; s/ .*//'").stdout.strip()
    lines = node.inside("cat", "/etc/nccl.conf").stdout
    assert lines.startswith(theirs)
    assert f"\nNCCL_SOCKET_IFNAME=={interface}\n" in lines
    assert "/etc/nccl.conf sets NCCL_DEBUG=INFO, which is only for debugging but applies to every" in result.stdout
    # The second interface is gone, so its setting goes. Foreign lines stay.
    assert changed_tasks(apply(nccl_install=True)) == ["Write the NCCL settings"]
    assert node.inside("cat", "/etc/nccl.conf").stdout == theirs


def install_standin(node: Machine, name: str, version: str) -> None:
    control = f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: nobody\nDescription: stub\n"
    put(node.container, f"/run/{name}/DEBIAN/control", control)
    inside(node.container, f"dpkg-deb --build /run/{name} >/dev/null; dpkg --install /run/{name}.deb >/dev/null")


@pytest.mark.slow
def test_conflicting_packages_are_refused(applied: Result, node: Machine, apply: Callable[..., Result]) -> None:
    install_standin(node, "nvidia-cuda-toolkit", "12.0.140")
    result = apply(cuda_toolkit_versions=["13.0"])
    node.inside("dpkg", "--purge", "nvidia-cuda-toolkit")
    assert result.rc != 0
    message = result.results("Check the CUDA toolkit packages")["node1"]["msg"]
    assert message.startswith("node1: nvidia-cuda-toolkit 12.0.140 is installed: the distribution's CUDA toolkit")
    assert "sudo apt remove nvidia-cuda-toolkit" in message

    node.inside("dpkg", "--purge", "datacenter-gpu-manager-4-cuda13", "datacenter-gpu-manager-4-core")
    install_standin(node, "datacenter-gpu-manager", "1:3.3.9")
    result = apply(dcgm_install=True)
    assert "datacenter-gpu-manager 1:3.3.9 is installed: it is DCGM 3" in result.results("Check DCGM")["node1"]["msg"]
    assert "datacenter-gpu-manager" in packages(node)
    # With the user's consent, the package is removed.
    assert apply(dcgm_install=True, dcgm_remove_old=True).rc == 0
    assert "datacenter-gpu-manager" not in packages(node)
    assert packages(node)["datacenter-gpu-manager-4-core"] == "1:4.7.0-1"


@pytest.mark.slow
def test_missing_container_engine_is_not_installed(
    applied: Result, node: Machine, apply: Callable[..., Result]
) -> None:
    result = apply(container_toolkit_engine="containerd")
    assert result.rc != 0
    message = result.results("Configure the container engine")["node1"]["msg"]
    assert message.startswith("node1: containerd is not installed. Muster installs only podman.")


@pytest.mark.slow
def test_held_packages_are_set_to_tested_versions(applied: Result, node: Machine, apply: Callable[..., Result]) -> None:
    older = "2.28.9-1+cuda13.0"
    inside(
        node.container,
        f"""
        export DEBIAN_FRONTEND=noninteractive
        apt-get -qq --yes --allow-downgrades --allow-change-held-packages install \
            libnccl2={older} libnccl-dev={older} >/dev/null
        apt-mark hold libnccl2 libnccl-dev >/dev/null
        """,
    )
    assert packages(node)["libnccl2"] == older
    result = apply(nccl_install=True)
    assert result.rc == 0, result.stdout
    assert packages(node)["libnccl2"] == packages(node)["libnccl-dev"] == "2.29.7-1+cuda13.2"
    assert {"libnccl2", "libnccl-dev"} <= set(node.inside("apt-mark", "showhold").stdout.split())


@pytest.mark.slow
def test_source_with_a_wrong_digest_is_not_unpacked(
    applied: Result, node: Machine, apply: Callable[..., Result], requested: dict[str, Any]
) -> None:
    result = apply(**{**requested, "nccl_tests_sha256": "0" * 64})
    assert result.rc != 0
    assert "Nothing was unpacked" in result.results("Build nccl-tests (some minutes)")["node1"]["msg"]
