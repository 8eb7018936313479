"""Run programs with common failures on a real GPU with torchrun, and check the diagnosis of their output.

Each fault is in the program or in the way the program is started. No program changes a GPU setting. Programs that fail
in a kernel (assert, illegal_access, misaligned) leave Xid lines in the kernel log, as usual.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

from muster.diagnosis.case import LaunchCase
from muster.diagnosis.causes import CAUSES
from muster.diagnosis.decide import decide
from muster.diagnosis.foreign import case_of_logs
from muster.diagnosis.log_sources import Known
from muster.diagnosis.texts import TEXTS
from muster.diagnosis.words import diagnosis

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECONDS = 120
# The run folder of torchrun below its log folder.
RUN_ID = re.compile(r"^ranks/[^/]+/")
WORLD = """
import os, sys, time, datetime
import torch, torch.distributed as dist
rank = int(os.environ["RANK"])
"""
GROUP = """
torch.cuda.set_device(0)
dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=10))
"""


class Mishap(NamedTuple):
    """A program with a failure. body: Python code that is appended to WORLD. expect: id of the expected text in
    diagnosis/texts; "" for none."""

    name: str
    body: str
    expect: str
    ranks: int = 1
    environment: tuple[tuple[str, str], ...] = ()
    group: bool = False

    @property
    def program(self) -> str:
        return WORLD + (GROUP if self.group else "") + self.body


MISHAPS = (
    Mishap("out_of_memory", "torch.empty(1 << 42, device='cuda')", "cuda.out_of_memory"),
    Mishap(
        "not_enough_memory",
        """
free, _ = torch.cuda.mem_get_info()
held = torch.empty(free - (8 << 20), dtype=torch.uint8, device="cuda")
a = torch.ones(8, 8, device="cuda")
print((a @ a).sum().item())
""",
        "cuda.",
    ),
    Mishap("invalid_device", "torch.cuda.set_device(99)", "cuda.invalid_device"),
    Mishap("no_gpu", "torch.ones(1).cuda()", "cuda.no_gpu", environment=(("CUDA_VISIBLE_DEVICES", ""),)),
    Mishap(
        "assert",
        """
logits, labels = torch.randn(4, 10, device="cuda"), torch.tensor([1, 2, 3, 10], device="cuda")
print(torch.nn.functional.cross_entropy(logits, labels).item())
""",
        "cuda.assert",
    ),
    Mishap(
        "illegal_access",
        """
kernel = torch.cuda._compile_kernel('extern "C" __global__ void far(float *p) { p[1ull << 44] = 1.0f; }', "far")
kernel((1, 1, 1), (1, 1, 1), (torch.ones(1, device="cuda"),))
torch.cuda.synchronize()
""",
        "cuda.illegal_access",
    ),
    Mishap(
        "misaligned",
        """
kernel = torch.cuda._compile_kernel('extern "C" __global__ void odd(char *p) { *(double *)(p + 1) = 1.0; }', "odd")
kernel((1, 1, 1), (1, 1, 1), (torch.ones(64, dtype=torch.uint8, device="cuda"),))
torch.cuda.synchronize()
""",
        "cuda.illegal_access",
    ),
    Mishap(
        "no_interface",
        "dist.barrier()",
        "nccl.no_interface",
        environment=(("NCCL_SOCKET_IFNAME", "=none0"),),
        group=True,
    ),
    Mishap("duplicate_gpu", "dist.all_reduce(torch.ones(1, device='cuda'))", "nccl.duplicate_gpu", ranks=2, group=True),
    Mishap(
        "unique_id",
        # nccl2 of torch 2.15 exchanges the ID in init_process_group, NCCL's older backend in the first collective.
        f"if rank == 0:\n    time.sleep(25)\n{GROUP}dist.all_reduce(torch.ones(1, device='cuda'))",
        "nccl.unique_id",
        ranks=2,
    ),
    Mishap(
        "timeout",
        # A single rank, because NCCL rejects two ranks on one GPU. The work before the second sum takes about 40 s.
        """
one = torch.ones(1, device="cuda")
dist.all_reduce(one)
torch.cuda.synchronize()
for _ in range(40):
    torch.cuda._sleep(2_000_000_000)
dist.all_reduce(one)
torch.cuda.synchronize()
""",
        "nccl.timeout",
        # By default, torch waits a minute between its message and the abort.
        environment=(("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "1000"),),
        group=True,
    ),
    Mishap(
        "no_kernel_image",
        # Code for another architecture (sm_75) only, compiled by torch's own compiler and loaded by the driver.
        """
import ctypes
from torch.cuda import _utils
torch.ones(1, device="cuda")
compiler, driver = _utils._get_gpu_rtc_library(), _utils._get_gpu_runtime_library()
program, size, module = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_void_p()
source, options = b'extern "C" __global__ void none() {}', (ctypes.c_char_p * 1)(b"--gpu-architecture=sm_75")
for refused in (
    compiler.nvrtcCreateProgram(ctypes.byref(program), source, b"none.cu", 0, None, None),
    compiler.nvrtcCompileProgram(program, 1, options),
    compiler.nvrtcGetCUBINSize(program, ctypes.byref(size)),
):
    assert refused == 0, refused
code = ctypes.create_string_buffer(size.value)
assert compiler.nvrtcGetCUBIN(program, code) == 0
_utils._check_cuda(driver.cuModuleLoadData(ctypes.byref(module), code))
""",
        "cuda.no_code",
    ),
    Mishap("cpu_tensor", "dist.all_reduce(torch.ones(1))", "nccl.device_type", group=True),
    Mishap(
        "forked",
        """
torch.ones(1, device="cuda")
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return torch.tensor(index, device="cuda")
for batch in torch.utils.data.DataLoader(Data(), num_workers=1, multiprocessing_context="fork"):
    print(batch)
""",
        "cuda.forked",
    ),
    Mishap("devices_mixed", "torch.ones(2, 2, device='cuda') @ torch.ones(2, 2)", "cuda.devices_mixed"),
)


def run(out: Path, say: Callable[[str], None]) -> bool:
    """Run part 6 of run.py. Return whether the diagnosis recognised each failure."""
    known = {text.id for text in TEXTS}
    held = True
    for mishap in MISHAPS:
        folder = out / "mishaps" / mishap.name
        logs = fail(mishap, folder)
        for name, kept in scrubbed(logs, folder, sys.prefix, platform.node()).items():
            path = out / "recorded_mishaps" / mishap.name / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(kept)
        text = "\n".join(logs.values())
        seen = sorted(one.id for one in TEXTS if re.search(one.pattern, text))
        right = not mishap.expect or any(one.startswith(mishap.expect) for one in seen)
        held = held and right and known.issuperset(seen)
        case = LaunchCase(case_of_logs(logs, [Known("here", "127.0.0.1", ("localhost",))]))
        decided = decide(case, CAUSES)
        say(f"  {mishap.name}: {'read' if right else 'NOT RECOGNISED'} as {', '.join(seen) or 'nothing'}")
        for line in diagnosis(case, decided)["lines"]:
            say(f"    {line}")
    return held


def scrubbed(logs: dict[str, str], folder: Path, prefix: str, host: str) -> dict[str, str]:
    """Return the logs without identifiers of this machine and run, for tests/unit/diagnosis/recorded."""
    names = {re.escape(str(folder)): "/srv/train", re.escape(prefix): "/srv/venv", rf"\b{re.escape(host)}\b": "node1"}
    kept = {}
    for name, log in logs.items():
        text = log
        for pattern, instead in names.items():
            text = re.sub(pattern, instead, text)
        kept[RUN_ID.sub("ranks/", name)] = text
    return kept


def fail(mishap: Mishap, folder: Path) -> dict[str, str]:
    """Run the program. Return {log name: text} of the launcher and the ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "train.py"
    program.write_text(mishap.program)
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={mishap.ranks}"]
    argv = [sys.executable, *launcher, f"--log-dir={folder / 'ranks'}", "--redirects=3", str(program)]
    quiet = {"TORCH_FR_BUFFER_SIZE": "0", "NCCL_DEBUG": "WARN"}
    environment = {**os.environ, **quiet, **dict(mishap.environment)}
    with (folder / "launcher.log").open("w") as log:
        try:
            subprocess.run(argv, check=False, stdout=log, stderr=log, timeout=SECONDS, env=environment)
        except subprocess.TimeoutExpired:
            log.write(f"\nstopped after {SECONDS} s\n")
    found = [folder / "launcher.log", *sorted((folder / "ranks").rglob("*.log"))]
    return {str(one.relative_to(folder)): one.read_text(errors="replace") for one in found}
