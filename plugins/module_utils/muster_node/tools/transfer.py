"""What was looked at, on its way from a node to the controller: JSON, made small. Eight GPUs alone print 130 kB."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

# nvidia-smi's four answers may be 4 MB each. Who decodes believes no node that it is not more.
MOST_BYTES = 32_000_000


def encode(value: Any) -> str:
    """Return the value as text; raises ValueError when it is too large to be decoded again."""
    text = json.dumps(value).encode()
    if len(text) > MOST_BYTES:
        raise ValueError(f"what was looked at is {len(text)} bytes, and {MOST_BYTES} is the most")
    return base64.b64encode(zlib.compress(text)).decode()


def decode(text: str) -> Any:
    """Return the value that was encoded; raises ValueError for anything else."""
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(base64.b64decode(text, validate=True), MOST_BYTES)
    except zlib.error as error:
        raise ValueError(f"it is damaged: {error}") from error
    if not stream.eof:
        raise ValueError(f"it is cut off, or more than {MOST_BYTES} bytes")
    return json.loads(content)
