"""Messages of the kernel and the C library about a process. Other libraries print them as well."""

from __future__ import annotations

from ..evidence import Text

SIGNALS = "torch 2.13, torch/utils/data/_utils/signal_handling.py"
# How DeepSpeed, Slurm, Python, MPI and container engines report the code of a process.
CODE = (
    r"(?:(?:[Rr]eturn|[Ee]xit|EXIT)[ _](?:[Cc]ode|CODE|status)|exitCode|exited with(?: error)? code)(?: =|:|=)?\s{0,8}"
)

TEXTS = (
    Text(
        "system.worker_killed",
        r"DataLoader worker \(pid(?:\(s\))? (?P<pid>[\d, ]+)\) (?:is killed by signal: Killed|exited unexpectedly)",
        "a data loader worker was killed from outside, usually by the OOM killer",
        "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed. ",
        SIGNALS,
    ),
    Text(
        "system.worker_crashed",
        r"DataLoader worker \(pid(?:\(s\))? (?P<pid>[\d, ]+)\) is killed by signal: (?:Segmentation fault|Aborted)",
        "a data loader worker crashed in native code",
        "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Segmentation fault. ",
        SIGNALS,
    ),
    Text(
        "system.worker_bus_error",
        r"DataLoader worker \(pid(?:\(s\))? (?P<pid>[\d, ]+)\) is killed by signal: Bus error",
        "a data loader worker wrote to shared memory that had no free space",
        "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Bus error. It is possible that dataloader's"
        " workers are out of shared memory. Please try to raise your shared memory limit.",
        SIGNALS,
    ),
    Text(
        "system.memory",
        r"(?:^|: )(?:MemoryError\b|\[Errno 12\]|(?!.*ibv_).*Cannot allocate memory"
        r"|.*DefaultCPUAllocator: can't allocate memory)",
        "the process requested more memory than the system could provide",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you"
        " tried to allocate 4000000000000 bytes. Error code 12 (Cannot allocate memory)",
        "torch 2.13, run here",
    ),
    Text(
        "system.killed",
        rf"(?:^|\s)Killed(?:\s{{2,}}\S.*)?$|{CODE}(?:-9|137)\b|<Signals\.SIGKILL|terminated with signal SIGKILL",
        "a process was killed by SIGKILL, sent by the OOM killer or another process",
        "./train.sh: line 4:  4711 Killed                  python train.py",
        "bash 5.2",
    ),
    Text(
        "system.bus_error",
        rf"(?:^|\s)Bus error(?: \(core dumped\))?(?:\s{{2,}}\S.*)?$|{CODE}(?:-7|135)\b|<Signals\.SIGBUS"
        r"|Unexpected bus error encountered in worker",
        "a process accessed a mapped file or shared memory for which no space was left",
        "Fatal Python error: Bus error",
        "Python 3.11's faulthandler",
    ),
    Text(
        "system.no_space",
        r"(?:\[Errno 28\] [^:]+|(?<!error: )No space left on device(?! \(28\)))(?:: '(?P<path>[^']+)')?",
        "a file could not be written: the disk is full or has no free inodes",
        "OSError: [Errno 28] No space left on device: '/data/checkpoints/step_100.pt'",
        "Python 3.11, run here",
    ),
    Text(
        "system.write_failed",
        r"PytorchStreamWriter failed writing file|inline_container\.cc:\d+\] \. unexpected pos \d+ vs \d+",
        "torch.save could not write the complete file, most often because the disk is full",
        "RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 640 vs 534",
        "torch 2.13, run here",
    ),
    Text(
        "system.quota",
        r"\[Errno 122\] |Disk quota exceeded",
        "the user reached the disk quota on this file system",
        "OSError: [Errno 122] Disk quota exceeded: '/home/me/checkpoints/step_100.pt'",
        "errno(3)",
    ),
    Text(
        "system.read_only",
        r"(?:\[Errno 30\] [^:]+|Read-only file system)(?:: '(?P<path>[^']+)')?",
        "the file system was mounted read-only, or the kernel remounted it read-only after an error",
        "OSError: [Errno 30] Read-only file system: '/data/checkpoints/step_100.pt'",
        "Python 3.11 and torch 2.13, run here",
    ),
    Text(
        "system.shared_memory",
        r"unable to (?:write to file|resize file|open shared memory object(?=.*No space)"
        r"|mmap \d+ bytes from file) </torch_[^>]+>"
        r"|unable to allocate shared memory\s?\(shm\)",
        "torch cannot create a file in /dev/shm: it is full, or the process has too many open files",
        "RuntimeError: unable to write to file </torch_8289_606636967_0>: No space left on device (28)",
        "MIC-DKFZ/nnUNet#2162, idiap/ESLAM#20",
    ),
    Text(
        "system.files",
        r"\[Errno 24\] |Too many open files(?! in system)|received 0 items of ancdata"
        r"|unable to open shared memory object </torch_[^>]+> in read-write mode(?!: No space)",
        "the process reached its limit of open files and connections",
        "OSError: [Errno 24] Too many open files: '/data/part-00012.bin'",
        "Python 3.11, run here",
    ),
    Text(
        "system.tasks",
        r"can't start new thread|\[Errno 11\] |pthread_create failed"
        r"|Thread creation failed: Resource temporarily unavailable|fork: (?:retry: )?Resource temporarily unavailable",
        "the limit on processes and threads was reached",
        "RuntimeError: can't start new thread",
        "Python 3.11, run here",
    ),
    Text(
        "system.crashed",
        r"Fatal Python error: (?:Segmentation fault|Aborted|Illegal instruction)|\bSIGSEGV received\b"
        r"|Signal: (?:Aborted|Segmentation fault) \(\d+\)|Segmentation fault \(core dumped\)"
        rf"|^(?:free\(\)|malloc\(\)|double free).*(?:corrupt|invalid)|{CODE}(?:-6|-11|134|139)\b"
        r"|<Signals\.SIG(?:SEGV|ABRT)",
        "a process crashed in native code",
        "Fatal Python error: Segmentation fault",
        "Python 3.11's faulthandler; mpirun: NVIDIA/nccl#1611",
    ),
    Text(
        "system.oom_killer",
        r"(?<!Memory cgroup )[Oo]ut of memory: Kill(?:ed)? process (?P<pid>\d+)|oom-kill:constraint=CONSTRAINT_NONE"
        r"|killed due to (?:the node running low on memory|memory pressure)",
        "the kernel killed a process because the memory of the machine was used up",
        "Out of memory: Killed process 4711 (python) total-vm:81234567kB, anon-rss:64123456kB",
        "Linux 6.8, mm/oom_kill.c",
    ),
    Text(
        "system.oom_limit",
        r"Memory cgroup out of memory|oom-kill:constraint=CONSTRAINT_MEMCG|\bOOMKilled\b|Exceeded job memory limit"
        r"|oom_kill event\(?s?\)? in StepId|Detected \d+ oom.kill event|task \d+: Out Of Memory",
        "a process was killed because its container, job or unit reached its memory limit",
        "Memory cgroup out of memory: Killed process 4711 (python) total-vm:81234567kB",
        "Linux 6.8, mm/oom_kill.c; Slurm and Kubernetes: their documentation",
    ),
    Text(
        "system.actor_died",
        r"A worker died or was killed while executing a task|The actor died unexpectedly before finishing this task"
        r"|ray\.exceptions\.OutOfMemoryError|Owner's node has crashed|detector has missed too many heartbeats",
        "a worker process of Ray ended without a word, most often because of the OOM killer",
        "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.",
        "OpenRLHF/OpenRLHF#187",
    ),
    Text(
        "system.xid",
        r"NVRM: Xid \(PCI:[^)]*\): (?!(?:13|31|43|45|68|69|109)\b)(?P<number>\d+)",
        "the driver reported a fault of the GPU in the kernel log",
        "NVRM: Xid (PCI:0000:17:00): 119, pid=4711, name=python, Timeout after 6s of waiting for RPC response",
        "Xid Catalog, docs.nvidia.com/deploy/xid-errors",
    ),
    Text(
        "system.xid.program",
        r"NVRM: Xid \(PCI:[^)]*\): (?P<number>13|31|43|45|68|69|109)\b",
        "the driver reported an error of a program on the GPU in the kernel log",
        "NVRM: Xid (PCI:0000:17:00): 31, pid=4711, name=python, Ch 00000008, intr 00000000. MMU Fault",
        "Xid Catalog, docs.nvidia.com/deploy/xid-errors",
    ),
    Text(
        "system.unified_memory",
        r"NV_ERR_NO_MEMORY",
        "the driver could not allocate memory, as on machines whose CPU and GPU share it (GB10)",
        "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051)",
        "NVIDIA/open-gpu-kernel-modules#1358, NVIDIA/dgx-spark-playbooks#97",
    ),
    Text(
        "system.fabric_manager",
        r"nvidia-fabricmanager\S*: (?:Main process exited|Failed)|Failed to start .*[Ff]abric ?[Mm]anager"
        r"|fabric manager NVIDIA GPU driver interface version|NV_WARN_NOTHING_TO_DO",
        "the fabric manager, which sets up the NVSwitches, did not start",
        "fabric manager NVIDIA GPU driver interface version 550.54.15 don't match with driver version 550.90.07.",
        "NVIDIA's guide of the fabric manager; read, not run",
    ),
    Text(
        "shell.file_missing",
        r"(?:\b(?:sh|bash)(?:: line \d+)?:(?: \d+:)? (?:cd: )?(?=[^\s:]+: No such file or directory)"
        r"|^Executable: (?=/\S+$))(?P<path>[^\s:]+)|\bcan't cd to (?P<folder>\S+)",
        "a folder or program does not exist at this path",
        "bash: line 1: cd: /data/job: No such file or directory",
        "bash 5.2, dash 0.5, Open MPI 4.1",
    ),
    Text(
        "shell.command_missing",
        r"\b(?:sh|bash)(?:: line \d+)?:(?: \d+:)? (?P<name>[\w./+-]+): (?:command )?not found"
        r"|execve\(\): (?P<program>[\w./+-]+): No such file or directory",
        "the shell of this node does not find the program: its PATH or environment differs",
        "bash: line 1: torchrun: command not found",
        "bash 5.2; Slurm: its documentation",
    ),
    Text(
        "system.storage",
        r"\[Errno (?:5|116|121)\] |Stale file handle|Input/output error|Transport endpoint is not connected",
        "a disk or a network file system failed",
        "OSError: [Errno 116] Stale file handle: '/data/train.csv'",
        "errno(3)",
    ),
    Text(
        "system.preempted",
        r"DUE TO (?:PREEMPTION|NODE FAILURE)|[Pp]reempted by|instance (?:was|has been) preempted|Reason: +Evicted"
        r"|The node was low on resource",
        "the scheduler or the cloud provider ended the job: preemption, eviction or a failed node",
        "slurmstepd: error: *** JOB 4711 ON node1 CANCELLED AT 2026-01-01T08:00:00 DUE TO PREEMPTION ***",
        "Slurm, Kubernetes: their documentation",
    ),
    Text(
        "system.time_limit",
        r"DUE TO TIME LIMIT|DeadlineExceeded",
        "the job reached the time limit of the scheduler",
        "slurmstepd: error: *** JOB 4711 ON node1 CANCELLED AT 2026-01-01T08:00:00 DUE TO TIME LIMIT ***",
        "Slurm, Kubernetes: their documentation",
    ),
)
