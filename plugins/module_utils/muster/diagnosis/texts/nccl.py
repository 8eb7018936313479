"""What NCCL, and torch on its behalf, print."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..model import Text

TEXTS: tuple[Text, ...] = ()
