"""The releases of PyTorch that are known here: one that never was is told from one that is too new to be known."""

from __future__ import annotations

# What `pip index versions torch` listed on 2026-11-21. Before 1.13 from PyTorch's own list of releases: 1.11 was the
# first with wheels for Python 3.10, the oldest Python that nodes may have.
RELEASES = (
    *("1.11.0", "1.12.0", "1.12.1", "1.13.0", "1.13.1"),
    *("2.0.0", "2.0.1", "2.1.0", "2.1.1", "2.1.2", "2.2.0", "2.2.1", "2.2.2", "2.3.0", "2.3.1", "2.4.0", "2.4.1"),
    *("2.5.0", "2.5.1", "2.6.0", "2.7.0", "2.7.1", "2.8.0", "2.9.0", "2.9.1", "2.10.0", "2.11.0", "2.12.0", "2.12.1"),
    *("2.13.0", "2.14.0", "2.14.1", "2.15.0"),
)


def nearest_release(version: str) -> str | None:
    """Return the known release nearest to one that never was; None for a known one, and for what is newer than all."""
    wanted = _numbers(version)
    if version in RELEASES or wanted > _numbers(RELEASES[-1]):
        return None
    return min(RELEASES, key=lambda release: _distance(_numbers(release), wanted))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))


def _distance(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(abs(a - b) for a, b in zip(one, other, strict=True))
