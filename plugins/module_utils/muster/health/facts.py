"""Convert the data collected on a node (muster_node/looks/health.py) into compact facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..inspect import facts as inspect_facts
from .subjects import facts_of, subjects

if TYPE_CHECKING:
    from collections.abc import Mapping

# Data that several subjects use.
LOOKS = ("system", "services", "clock", "disk", "users", "unit")


def facts(looks: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a node by subject. request: the options of nccl_health."""
    known = inspect_facts.facts({name: looks[name] for name in ("system", "services", "clock", "disk")})
    inside = looks["unit"]["inside"]
    if inside:
        # The subject `environment` has these facts, with secrets masked.
        inside = {name: value for name, value in inside.items() if name not in ("environment", "nccl_conf")}
    own: dict[str, Any] = {}
    for name in subjects():
        own |= facts_of(name, looks, request)
    return {
        **{name: known[name] for name in ("system", "looked_as", "firewall", "clock", "disk", "skipped")},
        "training_user": looks["users"]["training_user"],
        "unit": {**looks["unit"], "inside": inside},
        **own,
        "driver": own["gpu"]["driver"],
    }
