"""Products of matrices: how fast, and whether they are right to the last bit.

Two products, because they prove different things. That of random numbers is what a training does, so its rate counts;
repeated, it must come out bitwise equal (https://docs.nvidia.com/cuda/cublas/#results-reproducibility). That of small
integers is exact in every type and order of addition, so that the sums of its rows and columns are known exactly from
the factors: a fault that repeats itself is found too, with its row and column.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .context import Context

SIZES = {"cuda": 8192, "cpu": 512}
SAMPLE_SECONDS = {"cuda": 0.03, "cpu": 0.02}  # of one sample, which is several products
EXACT = torch.float64
WARM_SECONDS = {"cuda": 0.5, "cpu": 0.02}  # a GPU raises its clocks only under load


class Gemm:
    """The factors of one rank, always the same of the same seed."""

    def __init__(self, context: Context) -> None:
        self.context, self.device = context, context.device
        self.size = SIZES[self.device.type]
        self.dtype = dtype_of(self.device)
        generator = torch.Generator(self.device).manual_seed(context.options.seed)
        shape = (self.size, self.size)
        self.left, self.right = (
            torch.randn(shape, generator=generator, device=self.device).to(self.dtype) for _ in range(2)
        )
        self.whole_left, self.whole_right = (
            sparse_signs(shape, generator, self.device).to(self.dtype) for _ in range(2)
        )
        left, right = self.whole_left.to(EXACT), self.whole_right.to(EXACT)
        self.rows, self.columns = left.mv(right.sum(1)), right.t().mv(left.sum(0))
        with exact_sums():
            self.first = torch.mm(self.left, self.right)

    def rate(self, samples: int) -> dict[str, Any]:
        """TFLOPS of the samples: their median, and how far they are apart as a part of it."""
        kind = self.device.type
        with exact_sums():
            self.seconds(1)  # the first one also sets up its library
            each = self.seconds(1)
            self.seconds(max(1, int(WARM_SECONDS[kind] / each)))
            each = self.seconds(2) / 2
            times = max(1, int(SAMPLE_SECONDS[kind] / each))
            rates = sorted(2 * self.size**3 * times / self.seconds(times) / 1e12 for _ in range(samples))
        middle = rates[len(rates) // 2]
        return {
            "gemm_tflops": round(middle, 4),
            "gemm_spread": round((rates[-1] - rates[0]) / middle, 4),
            "gemm_dtype": str(self.dtype).removeprefix("torch."),
            "gemm_size": self.size,
        }

    def busy(self, seconds: float, each: float) -> None:
        """Give the GPU work for so long, and do not wait for it. each: seconds of one product."""
        for _ in range(max(1, int(seconds / each))):
            torch.mm(self.left, self.right)

    def seconds(self, times: int) -> float:
        self.context.wait()
        began = time.perf_counter()
        for _ in range(times):
            torch.mm(self.left, self.right)
        self.context.wait()
        return max(time.perf_counter() - began, 1e-9)

    def differences(self, times: int) -> list[dict[str, Any]]:
        """What was wrong in so many products of each kind: {how, places, row, column}."""
        found = []
        for _ in range(times):
            with exact_sums():
                again = torch.mm(self.left, self.right)
                whole = torch.mm(self.whole_left, self.whole_right)
            if not torch.equal(again, self.first):
                found.append({"how": "repeated", **where(again != self.first)})
            if wrong := self.wrong_sums(whole):
                found.append({"how": "sums", **wrong})
        return found

    def wrong_sums(self, product: torch.Tensor) -> dict[str, int]:
        """Of a product of the integers; {} where the sums of all rows and columns are exact."""
        rows = product.sum(1, dtype=EXACT) != self.rows
        columns = product.sum(0, dtype=EXACT) != self.columns
        if not bool(rows.any()) and not bool(columns.any()):
            return {}
        places = max(int(rows.sum()), int(columns.sum()))
        return {"places": places, "row": int(rows.int().argmax()), "column": int(columns.int().argmax())}


def dtype_of(device: torch.device) -> torch.dtype:
    """What is trained in: bf16 where the tensor cores have it, which those before Ampere do not."""
    if device.type != "cuda":
        return torch.float32
    return torch.bfloat16 if torch.cuda.get_device_capability(device)[0] >= 8 else torch.float16


def sparse_signs(shape: tuple[int, int], generator: torch.Generator, device: torch.device) -> torch.Tensor:
    """-1, 0 and 1, three of four are 0. A place of a product of 8192 is then within 256 by eleven standard deviations
    of its sum (sqrt(8192)/4 = 23), and each integer up to 256 is exact in bf16, as in fp16 and fp32.
    """
    numbers = torch.randint(0, 8, shape, generator=generator, device=device)
    return (numbers == 0).int() - (numbers == 1).int()


def where(differs: torch.Tensor) -> dict[str, int]:
    first = differs.nonzero()[0].tolist()
    return {"places": int(differs.sum()), "row": first[0], "column": first[1]}


@contextmanager
def exact_sums() -> Iterator[None]:
    """Sums are kept in fp32 until their end, and a CPU has one thread: what is then repeated is bitwise the same."""
    matmul, threads = torch.backends.cuda.matmul, torch.get_num_threads()
    before = matmul.allow_bf16_reduced_precision_reduction, matmul.allow_fp16_reduced_precision_reduction
    matmul.allow_bf16_reduced_precision_reduction = matmul.allow_fp16_reduced_precision_reduction = False
    torch.set_num_threads(1)
    try:
        yield
    finally:
        matmul.allow_bf16_reduced_precision_reduction, matmul.allow_fp16_reduced_precision_reduction = before
        torch.set_num_threads(threads)
