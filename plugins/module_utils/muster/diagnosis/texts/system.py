"""What the kernel and the C library print for a process."""

from __future__ import annotations

from ..model import Text

TEXTS = (
    Text(
        "system.worker_killed",
        r"DataLoader worker \(pid(?:\(s\))? (?P<pid>[\d, ]+)\) (?:is killed by signal: Killed|exited unexpectedly)",
        "a process of a data loader was ended from outside, most often for want of memory",
        "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed. ",
        "torch 2.13, torch/utils/data/_utils/signal_handling.py",
    ),
    Text(
        "system.worker_bus_error",
        r"DataLoader worker \(pid(?:\(s\))? (?P<pid>[\d, ]+)\) is killed by signal: Bus error",
        "a process of a data loader wrote into shared memory that has no room left",
        "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Bus error. It is possible that dataloader's"
        " workers are out of shared memory. Please try to raise your shared memory limit.",
        "torch 2.13, torch/utils/data/_utils/signal_handling.py",
    ),
    Text(
        "system.memory",
        r"(?:^|: )(?:MemoryError\b|.*Cannot allocate memory|.*DefaultCPUAllocator: can't allocate memory)",
        "the process asked for more memory than it was given",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you"
        " tried to allocate 4000000000000 bytes. Error code 12 (Cannot allocate memory)",
        "torch 2.13",
    ),
)
