"""Patterns do not match the examples of other texts. test_errors.py contains the other checks of the table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from muster.diagnosis.texts import TEXTS

if TYPE_CHECKING:
    from muster.diagnosis.evidence import Text

# Other wordings than the example: lines of nccl2 (torch 2.15 and 2.14), put together from its sources.
WORDINGS = {
    "[TC][rank=1][name=0] Operation timed out after 600012 ms": {"nccl.timeout"},
    "Aborting process on rank 1 due to timeout - timeout watchdog detected operation timeout": {"nccl.timeout"},
    "Aborting process on rank 1 due to timeout - collective operation timed out": {"nccl.timeout"},
    "DistBackendError: Watchdog caught collective operation timeout: NCCL operation timed out": {"nccl.timeout"},
    "torch.distributed.DistBackendError: NCCL operation timed out": {"nccl.timeout"},
    "[TC] ProcessGroupNCCL::shutdown: finalize() raised, Work timed out during finalize": {"nccl.timeout"},
    "Failed to initialize NCCL communicator timed out after 600000 ms": {"nccl.timeout"},
    "NCCL AllReduce failed timed out after 600000 ms": {"nccl.timeout"},
    "Aborting process on rank 1 due to error - timeout watchdog detected operation error": {"nccl.failed"},
    "RuntimeError: NCCL communicator was aborted after a previous error": {"nccl.failed"},
    "nccl hit async error on rank 1: remote process exited or there was a network error": {"nccl.remote"},
    "NCCL Async Error: unhandled system error (run with NCCL_DEBUG=INFO for details)": {"nccl.system_error"},
    "RuntimeError: NCCL AllReduce failed: unhandled cuda error (run with NCCL_DEBUG=INFO for details)": {
        "nccl.cuda_error"
    },
    "RuntimeError: Failed to initialize NCCL communicator: unhandled system error (run with NCCL_DEBUG=INFO)": {
        *("nccl.init", "nccl.system_error")
    },
    "wait timeout after 600000ms, keys: /default_pg/0//cuda//0/nccl_storekey_0": {"nccl.unique_id", "store.key"},
    # The creator of another group, or of a group with several creators, is unknown.
    "wait timeout after 600000ms, keys: /default_pg/3//cuda//3/nccl_storekey_0": {"store.key"},
    "wait timeout after 600000ms, keys: /default_pg/0//cuda//0/nccl_storekey_0_1": {"store.key"},
    "RuntimeError: Expected tensor on cuda:1 but found tensor on cuda:0": {"nccl.other_device"},
    "CUDA error during end event query: CUDA error: an illegal memory access was encountered": {"cuda.illegal_access"},
}
# Exceptions: (text with the example, other text that also matches it).
ALSO = {("nccl.unique_id", "store.key")}


@pytest.mark.parametrize("text", TEXTS, ids=[text.id for text in TEXTS])
def test_example_matches_only_its_own_text(text: Text) -> None:
    others = {one.id for one in TEXTS if one is not text and re.search(one.pattern, text.example)}
    assert {(text.id, one) for one in others} <= ALSO


@pytest.mark.parametrize("line", WORDINGS)
def test_lines_of_both_nccl_backends_are_known(line: str) -> None:
    assert {text.id for text in TEXTS if re.search(text.pattern, line)} == WORDINGS[line]
