"""Messages from before a launch: of drivers and packages that are installed, and of logins to the nodes."""

from __future__ import annotations

from ..evidence import Text

TEXTS = (
    Text(
        "before.module",
        r"Bad return status for module build|modpost: .*(?:undefined!|GPL-incompatible)|dkms: .*(?:fail|error)"
        r"|could not insert '?nvidia|modprobe: (?:ERROR|FATAL):.*nvidia|[Nn]vidia.*Key was rejected by service",
        "the kernel module of the driver could not be built or loaded",
        "Error! Bad return status for module build on kernel: 6.8.0-60-generic (x86_64)",
        "DKMS 3; modprobe; read, not run",
    ),
    Text(
        "before.packages",
        r"have unmet dependencies|you have held broken packages|Unable to (?:locate package|correct problems)"
        r"|dpkg: error processing|Failed to fetch https?://|Could not get lock /var/lib/(?:dpkg|apt)",
        "the package manager could not install a package",
        "The following packages have unmet dependencies:",
        "apt 2.7",
    ),
    Text(
        "before.login",
        r"Permission denied \((?:publickey|password|gssapi)|Host key verification failed|was not reachable via ssh"
        r"|REMOTE HOST IDENTIFICATION HAS CHANGED|ssh: connect to host|kex_exchange_identification"
        r"|ssh .*returned non-zero exit status 255|ssh exited with exit code 255|Too many authentication failures"
        r"|No authentication methods available|not a valid \w+ private key file",
        "a login to another node by SSH failed, so that nothing was started there",
        "eva@10.20.0.14: Permission denied (publickey,password).",
        "OpenSSH 9.6; DeepSpeed: deepspeedai/DeepSpeed#4907; pdsh; paramiko",
    ),
    Text(
        "before.name",
        r"ssh: Could not resolve hostname (?P<name>[\w.-]+)|nslookup: can't resolve '(?P<asked>[\w.-]+)'",
        "the name of another node or pod could not be resolved",
        "ssh: Could not resolve hostname job-worker-5.job: Name or service not known",
        "OpenSSH 9.6; volcano-sh/volcano#2226",
    ),
    Text(
        "before.lock",
        r"as PyTorch extensions root\.\.\.$|Lock file exists in build directory",
        "torch builds an extension, or waits for the process that builds it",
        "Using /home/user/.cache/torch_extensions/py311_cu128 as PyTorch extensions root...",
        "torch/utils/file_baton.py; pytorch/pytorch#189245",
        ordinary=True,
    ),
    Text(
        "before.extension",
        r"Error building extension|CUDA_HOME (?:environment variable is not set|does not exist)|Ninja is required"
        r"|CUDAMismatchException|(?:detected|Installed) CUDA version .*(?:mismatches|does not match)",
        "an extension could not be compiled on this node",
        "RuntimeError: Error building extension 'cpu_adam'",
        "torch/utils/cpp_extension.py; DeepSpeed; read, not run",
    ),
    Text(
        "before.container",
        r"could not select device driver .*gpu|nvidia-container-cli: |OCI runtime (?:create|start) failed"
        r"|\b(?:Create|Run)Container(?:Config)?Error\b|exec format error|unknown or invalid runtime name: nvidia"
        r"|pyxis: (?:container start failed|failed to import)|\b(?:ImagePullBackOff|ErrImagePull)\b",
        "a container could not be started with GPUs, or its image could not be loaded",
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
        "Docker; NVIDIA container toolkit; read, not run",
    ),
)
