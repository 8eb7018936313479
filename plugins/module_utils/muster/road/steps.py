"""The steps of site.yml.

The table in README, the order of the options, and the options that must have the same value on all nodes are derived
from these steps.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RoadStep:
    """One step. It can be run alone with its tag.

    name: name in site.yml. tag: also the name of its playbook. does: description for the table in README, in Markdown;
    a step without a description is not in the table. roles: roles in order. agree: options that must have the same
    value on all nodes; all other options of its roles can differ between nodes.
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
        "validates the inventory before contacting any node and reports all problems at once",
        ("cluster",),
        (
            *("cluster_name", "cluster_backend", "cluster_master_port", "cluster_torch_version", "cluster_user"),
            *("cluster_launch_nodes", "cluster_artifacts_dir", "cluster_artifacts_keep", "cluster_run_root"),
            *("cluster_notify_url_file", "cluster_notify_command", "cluster_notify_format"),
            *(
                "cluster_run_keep",
                "cluster_run_keep_mb",
                "cluster_work_root",
                "cluster_users_root",
                "cluster_take_over",
            ),
            *("cluster_full", "cluster_mode"),
            *("cluster_mirror", "cluster_mirror_urls", "cluster_http_proxy", "cluster_https_proxy"),
            *("cluster_no_proxy", "cluster_extra_ca", "cluster_offline_dir", "cluster_environments"),
            "cluster_own_environments",
        ),
    ),
    RoadStep(
        "Inspect",
        "inspect",
        "inspects every node without changing it, and stops nodes that cannot continue "
        "([docs/inspect.md](docs/inspect.md))",
    ),
    RoadStep(
        "Baseline",
        "baseline",
        "the packages, time synchronization, limits and unprivileged user that training needs",
        ("package_sources", "node_baseline"),
    ),
    RoadStep(
        "Network",
        "network",
        "host names that resolve to cluster addresses, verified SSH between nodes, a firewall (enables ufw, default "
        "deny; [docs/ports.md](docs/ports.md)); on request, shared folders of a file server "
        "([docs/shared_data.md](docs/shared_data.md))",
        ("cluster_hosts", "ssh_mesh", "firewall", "mtu", "shared_data"),
        ("mtu_training", "shared_data_mounts"),
    ),
    RoadStep(
        "GPU stack",
        "gpu_stack",
        "driver, fabric manager, support for InfiniBand and RoCE; on request, CUDA, NCCL, containers and DCGM: "
        "[one set of compatible versions](#gpus)",
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
        "one PyTorch environment with identical wheels on every node, downloaded once "
        "([docs/wheels.md](docs/wheels.md))",
        ("pytorch", "launch_users", "workbench"),
        ("workbench_nodes", "workbench_root", "workbench_jupyterlab", "workbench_packages", "workbench_lock"),
    ),
    RoadStep(
        "Health",
        "health",
        "checks every node and link, compares the nodes, and blocks launches that would fail "
        "([docs/health.md](docs/health.md))",
        ("health",),
        ("health_gate", "health_quarantine", "health_throughput", "health_rails", "health_collective", "health_code"),
    ),
    RoadStep(
        "DDP smoke",
        "ddp_smoke",
        "`torchrun` on every node, supervised, with verified results",
        ("launch", "ddp_smoke"),
    ),
    RoadStep(
        "Watch",
        "watch",
        "on request, nodes that check themselves on a schedule, metrics and alerts "
        "([docs/monitoring.md](docs/monitoring.md))",
        ("watch", "monitoring"),
        ("monitoring_server", "monitoring_alertmanagers", "monitoring_retention_days", "monitoring_dcgm_exporter"),
    ),
    RoadStep(
        "Slurm",
        "slurm",
        "on request, Slurm with health checks ([docs/slurm.md](docs/slurm.md))",
        ("slurm",),
        ("slurm_controller", "slurm_partition", "slurm_srun_ports", "slurm_health", "slurm_config"),
    ),
    # Every run writes the report without a request.
    RoadStep("Report", "report", "", ("report",)),
)
