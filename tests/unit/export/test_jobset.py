"""The exported JobSet: every field, and the command in its container."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import yaml

from launch_shapes import a_node, a_request
from muster.export.job import exported
from muster.export.jobset import jobset

IMAGE = {"source": "registry.example/torch:2", "id": "", "folders": []}
FOLDERS = {"script_src": "", "project": ""}


def manifest(gpus: int = 8, **request: Any) -> dict[str, Any]:
    nodes = [a_node(number, nproc=8, gpus=gpus) for number in (1, 2)]
    given = {"backend": "auto", "image": IMAGE, **request}
    found: dict[str, Any] = yaml.safe_load(jobset(exported(a_request(**given), nodes, FOLDERS)))
    return found


def pod_of(found: dict[str, Any]) -> dict[str, Any]:
    (replicated,) = found["spec"]["replicatedJobs"]
    pod: dict[str, Any] = replicated["template"]["spec"]["template"]["spec"]
    return pod


def test_one_pod_per_node_with_its_gpus() -> None:
    found = manifest(time_limit=3600, restarts=2, stop_timeout=45)
    assert (found["apiVersion"], found["kind"], found["metadata"]) == (
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        {"name": "train"},
    )
    assert found["spec"]["failurePolicy"] == {"maxRestarts": 2}
    job = found["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert {name: job[name] for name in ("parallelism", "completions", "completionMode", "backoffLimit")} == {
        "parallelism": 2,
        "completions": 2,
        "completionMode": "Indexed",
        "backoffLimit": 0,
    }
    assert job["activeDeadlineSeconds"] == 3600
    pod = pod_of(found)
    assert (pod["restartPolicy"], pod["terminationGracePeriodSeconds"]) == ("Never", 45)
    (container,) = pod["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 8}}
    assert pod["volumes"] == [{"name": "shm", "emptyDir": {"medium": "Memory"}}]


def test_secrets_are_references_and_the_address_is_that_of_the_pod() -> None:
    container = pod_of(manifest(env={"HF_TOKEN": "s3cret", "A": "b: c", "NO": "1"}))["containers"][0]
    env = {one["name"]: one.get("value", one.get("valueFrom")) for one in container["env"]}
    assert env["HF_TOKEN"] == {"secretKeyRef": {"name": "train", "key": "HF_TOKEN"}}
    assert (env["A"], env["NO"]) == ("b: c", "1"), "NO is no boolean of YAML"
    assert env["LOCAL_ADDR"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert env["MASTER_ADDR"] == "train-node-0-0.train"
    assert "s3cret" not in str(container)


def test_command_of_the_container_has_the_rank_of_its_pod() -> None:
    container = pod_of(manifest(script_args=["it's", "$X"]))["containers"][0]
    shell, dash_c, text = container["command"]
    env = {one["name"]: str(one.get("value", "10.1.1.7")) for one in container["env"]}
    text = text.replace("exec torchrun", "exec printf '%s\\n'")
    done = subprocess.run(
        [shell, dash_c, text],
        env={**env, "JOB_COMPLETION_INDEX": "1", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    words = done.stdout.splitlines()
    assert words[:3] == ["--nnodes=2", "--node-rank=1", "--nproc-per-node=8"]
    assert words[-3:] == ["/srv/job/train.py", "it's", "$X"]


def test_launch_on_cpus_requests_cpus() -> None:
    container = pod_of(manifest(gpus=0, backend="gloo"))["containers"][0]
    assert container["resources"] == {"requests": {"cpu": 8}}


def test_launch_without_an_image_is_rejected() -> None:
    with pytest.raises(ValueError, match="set launch_image"):
        manifest(image=None)
