"""Create a small archive with the layout of CIFAR-10: 120 noise images instead of 60000.

The batches are pickles as written by Python 2 with NumPy: cifar-10-python.tar.gz
(https://www.cs.toronto.edu/~kriz/cifar.html)
contains cifar-10-batches-py/data_batch_1 to 5, test_batch and batches.meta. This module does not need NumPy.
"""

from __future__ import annotations

import io
import random
import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

EACH = 20  # images per batch, instead of 10000


def text(value: bytes) -> bytes:
    """Return the pickle opcode BINSTRING for a Python 2 string."""
    return b"T" + len(value).to_bytes(4, "little") + value


def number(value: int) -> bytes:
    return b"J" + value.to_bytes(4, "little", signed=True)


def batch(source: random.Random, name: bytes, count: int) -> bytes:
    """Return a pickle (protocol 2) of {batch_label, labels, data, filenames}. data: uint8, count x 3072."""
    dtype = b"cnumpy\ndtype\n" + text(b"u1") + number(0) + number(1) + b"\x87R"
    dtype += b"(" + number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + number(0) + b"\x85" + text(b"b") + b"\x87R"
    shape = number(count) + number(3072) + b"\x86"
    array += b"(" + number(1) + shape + dtype + b"\x89" + text(source.randbytes(count * 3072)) + b"tb"
    labels = b"](" + b"".join(number(source.randrange(10)) for _ in range(count)) + b"e"
    names = b"](" + b"".join(text(b"noise_%d.png" % number) for number in range(count)) + b"e"
    pairs = text(b"data") + array + text(b"labels") + labels
    pairs += text(b"batch_label") + text(name) + text(b"filenames") + names
    return b"\x80\x02}(" + pairs + b"u."


def write(path: Path) -> None:
    source = random.Random(10)
    with tarfile.open(path, "w:gz") as archive:
        for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
            content = batch(source, name.encode(), EACH)
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
