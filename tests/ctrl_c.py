"""Ctrl-C for the programs that tests start."""

from __future__ import annotations

import signal


def restore() -> None:
    """Stop ignoring SIGINT, which a shell ignores for programs in the background, and which child processes inherit."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
