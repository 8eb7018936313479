"""Encodes inspection results as compressed JSON for the transfer to the controller. For eight GPUs, nvidia-smi prints
130 kB."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

# nvidia-smi's four outputs may have 4 MB each. The decoder enforces the limit.
MOST_BYTES = 32_000_000


def encode(value: Any) -> str:
    """Return the value as text. Raises ValueError if the value is too large to be decoded."""
    text = json.dumps(value).encode()
    if len(text) > MOST_BYTES:
        raise ValueError(f"the inspection result has {len(text)} bytes, but at most {MOST_BYTES} are allowed")
    return base64.b64encode(zlib.compress(text)).decode()


def decode(text: str) -> Any:
    """Return the encoded value. Raises ValueError for invalid text."""
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(base64.b64decode(text, validate=True), MOST_BYTES)
    except zlib.error as error:
        raise ValueError(f"corrupt data: {error}") from error
    if not stream.eof:
        raise ValueError(f"truncated, or more than {MOST_BYTES} bytes")
    return json.loads(content)
