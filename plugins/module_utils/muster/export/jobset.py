"""A launch as a JobSet for Kubernetes (jobset.x-k8s.io/v1alpha2): one pod per node runs the launcher.

A JobSet and not a TrainJob: it needs no training runtime that an administrator has to install for the framework, and
each field can be seen in the file.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .job import VARIABLE
from .sbatch import MARK, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .job import ExportedJob

PODS = "node"
LOGS = "logs"  # in the working folder of the container


def jobset(job: ExportedJob) -> str:
    """Return the manifest. Raises ValueError if the launch has no container image."""
    if not job.image:
        raise ValueError("Kubernetes runs container images: set launch_image to an image of your registry")
    return "\n".join([*_head(job), *_container(job), ""])


def text(value: object) -> str:
    """Return a value as a YAML scalar. JSON is YAML."""
    return json.dumps(value)


def _head(job: ExportedJob) -> Iterator[str]:
    yield f"{MARK}. Start it with: kubectl create -f FILE. The cluster needs the JobSet controller."
    for sentence in job.left_out:
        yield f"# Not exported: {sentence}"
    yield "apiVersion: jobset.x-k8s.io/v1alpha2"
    yield "kind: JobSet"
    yield f"metadata: {{name: {text(job.name)}}}"
    yield "spec:"
    yield "  # Attempts after the first one (launch_restarts). All pods restart together."
    yield f"  failurePolicy: {{maxRestarts: {job.restarts}}}"
    yield "  # Each pod has a host name, so that the other pods can find the one with rank 0."
    yield "  network: {enableDNSHostnames: true}"
    yield "  replicatedJobs:"
    yield f"    - name: {PODS}"
    yield "      replicas: 1"
    yield "      template:"
    yield "        spec:"
    yield "          # One pod per node, numbered from 0."
    yield f"          parallelism: {job.nodes}"
    yield f"          completions: {job.nodes}"
    yield "          completionMode: Indexed"
    yield "          backoffLimit: 0"
    if job.time_limit:
        yield f"          activeDeadlineSeconds: {job.time_limit}"
    yield "          template:"
    yield "            spec:"
    yield "              restartPolicy: Never"
    yield f"              terminationGracePeriodSeconds: {job.stop_timeout}"


def _container(job: ExportedJob) -> Iterator[str]:
    line = " " * 18
    yield "              containers:"
    yield "                - name: launch"
    yield f"{line}image: {text(job.image)}"
    if job.folder:
        yield f"{line}# The files of the launch must be in the image or on a volume at this path."
        yield f"{line}workingDir: {text(job.folder)}"
    script = "\n".join(
        [
            "set -eu",
            "export NODE_RANK=$JOB_COMPLETION_INDEX",
            *(f"export {name}={quoted(value)}" for name, value in job.env.items() if VARIABLE.search(value)),
            "exec " + " ".join(quoted(word) for word in job.words),
        ]
    )
    yield f"{line}command: [bash, -c, {text(script)}]"
    yield f"{line}env:"
    first = f"{job.name}-{PODS}-0-0.{job.name}"
    fixed = {"NNODES": str(job.nodes), "MASTER_ADDR": first, "MASTER_PORT": str(job.port), "JOB_ID": job.name}
    fixed |= {"LOG_DIR": LOGS, **{name: value for name, value in job.env.items() if not VARIABLE.search(value)}}
    for name, value in fixed.items():
        yield f"{line}  - {{name: {text(name)}, value: {text(value)}}}"
    yield f"{line}  - {{name: LOCAL_ADDR, valueFrom: {{fieldRef: {{fieldPath: status.podIP}}}}}}"
    if job.secrets:
        yield f"{line}  # Secrets are not in this file: kubectl create secret generic {job.name} --from-env-file=..."
    for name in job.secrets:
        source = f"{{name: {text(job.name)}, key: {text(name)}}}"
        yield f"{line}  - {{name: {text(name)}, valueFrom: {{secretKeyRef: {source}}}}}"
    if job.gpus:
        yield f"{line}resources: {{limits: {{nvidia.com/gpu: {job.gpus}}}}}"
    else:
        yield f"{line}resources: {{requests: {{cpu: {job.nproc}}}}}"
    yield f"{line}# NCCL and data loaders need more shared memory than the default of 64 MB."
    yield f"{line}volumeMounts: [{{name: shm, mountPath: /dev/shm}}]"
    yield "              volumes: [{name: shm, emptyDir: {medium: Memory}}]"
