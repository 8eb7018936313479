"""The kernels of a node and its firmware, which decide whether the driver works after the next boot."""

from __future__ import annotations

from ..tools.boot import look

__all__ = ["look"]
