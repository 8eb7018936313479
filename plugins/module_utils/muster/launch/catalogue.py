"""The checks of a launch by their ids: what this controller itself says of a finding, and what fixes it."""

from __future__ import annotations

from ..verdict.check import Check
from . import attempts, caches, data, endings, fetched, grants, image, manager, occupied, outcome, preflight

MODULES = (attempts, caches, data, fetched, grants, image, manager, occupied, outcome, preflight)
CATALOGUE = {
    check.id: check
    for checks in (endings.CHECKS, *(vars(module).values() for module in MODULES))
    for check in checks
    if isinstance(check, Check)
}
