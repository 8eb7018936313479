"""The launch checks by ID, with the controller's own text and fix for each finding."""

from __future__ import annotations

from ..verdict.check import Check
from . import attempts, caches, data, endings, fetched, grants, image, manager, occupied, outcome, preflight, slurm_jobs

MODULES = (attempts, caches, data, fetched, grants, image, manager, occupied, outcome, preflight, slurm_jobs)
CATALOGUE = {
    check.id: check
    for checks in (endings.CHECKS, *(vars(module).values() for module in MODULES))
    for check in checks
    if isinstance(check, Check)
}
