"""The steps of site.yml, once.

README's table, the order of the options, and what all nodes must agree on come from these.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RoadStep:
    """One step, which runs alone by its tag.

    name: as site.yml has it. tag: also the name of its playbook. does: one line of README, in Markdown; without one the
    step is not in its table. roles: those that it brings, in their order. agree: options that must be the same on all
    nodes; all others of its roles are each node's own.
    """

    name: str
    tag: str
    does: str
    roles: tuple[str, ...] = ()
    agree: tuple[str, ...] = ()

    @property
    def playbook(self) -> str:
        return f"playbooks/{self.tag}.yml"


STEPS = (
    RoadStep(
        "Validate",
        "validate",
        "judges the inventory on the controller, before any node is contacted, and names all its problems at once",
        ("cluster",),
        (
            *("cluster_name", "cluster_backend", "cluster_master_port", "cluster_torch_version", "cluster_user"),
            *("cluster_launch_nodes", "cluster_artifacts_dir", "cluster_artifacts_keep", "cluster_run_root"),
            *(
                "cluster_run_keep",
                "cluster_run_keep_mb",
                "cluster_work_root",
                "cluster_users_root",
                "cluster_take_over",
            ),
            "cluster_full",
            *("cluster_mirror", "cluster_mirror_urls", "cluster_http_proxy", "cluster_https_proxy"),
            *("cluster_no_proxy", "cluster_extra_ca", "cluster_offline_dir", "cluster_environments"),
        ),
    ),
    RoadStep(
        "Inspect",
        "inspect",
        "looks at every node, changes nothing, and stops the ones that cannot go on "
        "([docs/inspect.md](docs/inspect.md))",
    ),
    RoadStep(
        "Baseline",
        "baseline",
        "packages, time, limits and the unprivileged user that training needs",
        ("package_sources", "node_baseline"),
    ),
    RoadStep(
        "Network",
        "network",
        "names that never mean loopback, ssh between the nodes with checked keys, a firewall that stays on "
        "([docs/ports.md](docs/ports.md)); folders of a file server, where they are requested "
        "([docs/shared_data.md](docs/shared_data.md))",
        ("cluster_hosts", "ssh_mesh", "firewall", "mtu", "shared_data"),
        ("mtu_training", "shared_data_mounts"),
    ),
    RoadStep(
        "GPU stack",
        "gpu_stack",
        "driver, fabric manager, what InfiniBand and RoCE need, and on request CUDA, NCCL, containers and DCGM: "
        "[one set of versions that fit](#gpus)",
        ("gpu_stack", "rdma", "nvidia_driver", "cuda_toolkit", "nccl", "container_toolkit", "dcgm"),
        (
            *("gpu_stack_driver", "gpu_stack_source", "gpu_stack_modules", "gpu_stack_build"),
            *("gpu_stack_repository_keys", "cuda_toolkit_versions", "nccl_install", "nccl_tests_version"),
            *("nccl_tests_source", "nccl_tests_sha256", "container_toolkit_engine", "dcgm_install"),
        ),
    ),
    RoadStep(
        "PyTorch",
        "pytorch",
        "one PyTorch environment, the same on every node to the last wheel, downloaded once "
        "([docs/wheels.md](docs/wheels.md))",
        ("pytorch", "launch_users", "workbench"),
        ("workbench_nodes", "workbench_root", "workbench_jupyterlab", "workbench_packages", "workbench_lock"),
    ),
    RoadStep(
        "Health",
        "health",
        "every node and every link examined, the nodes compared; a launch that would fail is not begun "
        "([docs/health.md](docs/health.md))",
        ("health",),
        ("health_gate", "health_quarantine", "health_throughput", "health_rails", "health_collective", "health_code"),
    ),
    RoadStep(
        "DDP smoke",
        "ddp_smoke",
        "`torchrun` on every node, supervised, and its results checked",
        ("launch", "ddp_smoke"),
    ),
    # Every run writes its page without being asked.
    RoadStep("Report", "report", "", ("report",)),
)
