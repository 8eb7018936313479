"""Messages of Ray and Horovod, and of schedulers about nodes."""

from __future__ import annotations

from ..evidence import Text

TEXTS = (
    Text(
        "ray.version",
        r"Version mismatch: The cluster was started with",
        "the running Ray cluster has another version of Ray or Python than this process",
        "RuntimeError: Version mismatch: The cluster was started with:",
        "ray-project/ray#44063, Unakar/Logic-RL#30",
    ),
    Text(
        "ray.address",
        r"Every node should have a unique IP address|fulfill resource request \{'node:(?P<address>[\w.:]+)'",
        "a node is known to Ray by another address than to the program, which chose the wrong interface",
        "RuntimeError: Every node should have a unique IP address. Got 2 nodes with node ids ['a', 'b'] and 3 unique",
        "vllm-project/vllm#43095, vllm-project/vllm#14186",
    ),
    Text(
        "ray.waiting",
        r"Waiting for creating a placement group|fulfill resource request \{(?!'node:)|less than total desired GPUs"
        r"|number of required \w+ exceeds the total number of available|\b0/\d+ nodes are available: "
        r"|cannot be scheduled right now|[Pp]lacement groups? (?:creation timed out|to be ready)"
        r"|group startup timed out"
        r"|[Nn]ode has no GPU available|not allocate any GPUs|Insufficient nvidia\.com",
        "Ray or the scheduler waits for nodes or GPUs that it does not have",
        "ValueError: Total available GPUs 8.0 is less than total desired GPUs 16",
        "vLLM, verl, Kubernetes, Slurm: their sources, read; vllm-project/aibrix#927",
    ),
    Text(
        "ray.connect",
        r"[Ff]ailed to connect to (?:all addresses|GCS)|waiting for GCS to become available|NoValidAddressesFound"
        r"|[Uu]nable to connect to (?:the )?horovod \w+ service|unable to reach each other|how to route a message",
        "a process of Ray, Horovod or Open MPI cannot connect to another one, such as Ray's head node",
        "IOError: 14: failed to connect to all addresses",
        "ray-project/ray#6662, horovod/horovod#1969; Ray's source, read",
        victim=True,
    ),
)
