"""Plan the steps from the PyTorch environments on a node to the requested environment. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .request import EnvironmentRequest

INBORN = ("pip", "setuptools", "wheel", "pkg-resources")


@dataclass(frozen=True)
class Environment:
    """The result of inspecting one environment. faults: defects that do not depend on the request."""

    python: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Observed:
    """The environments in the root folder by name, newest first. The value is None for one that was not inspected.

    current: name of the environment that the link points to; "" if it points elsewhere. link: target of the link; "" if
    the link does not exist.
    """

    link: str = ""
    current: str = ""
    environments: Mapping[str, Environment | None] = field(default_factory=dict)
    in_use: frozenset[str] = frozenset()


@dataclass(frozen=True)
class EnvironmentPlan:
    """The steps, in this order: discard broken leftovers, build, switch, and remove environments beyond the limit."""

    target: str
    reasons: tuple[str, ...] = ()
    discard: tuple[str, ...] = ()
    build: bool = False
    switch: bool = False
    retire: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        return self.build or self.switch or bool(self.discard or self.retire)


def plan(request: EnvironmentRequest, observed: Observed, keep: int) -> EnvironmentPlan:
    environments = observed.environments

    def broken(name: str) -> bool:
        looked = environments.get(name)
        return looked is not None and bool(looked.faults)

    candidates = [name for name in environments if name == request.name or name.startswith(f"{request.name}.")]
    lacks = {name: shortcomings(request, environments[name] or Environment()) for name in candidates}
    good = [name for name in candidates if not lacks[name]]
    # The target of `current` stays unchanged until the switch, because a launch may start from it at any moment.
    free = [name for name in environments if name not in observed.in_use and name != observed.current]

    reasons: list[str] = []
    discard: list[str] = []
    if observed.current in good:
        target = observed.current
    else:
        if not observed.link:
            reasons.append("no environment exists yet")
        elif observed.current in lacks:
            reasons.extend(lacks[observed.current])
        else:
            reasons.append(f"current points to {observed.link}")
        discard = [name for name in candidates if name in free and name not in good]
        taken = set(environments) - set(discard)
        target = good[0] if good else _first_free(request.name, taken)
        reasons.extend(f"{name} is unfinished or broken: {lacks[name][0]}" for name in discard)

    others = [name for name in environments if name != target and name not in discard]
    # The environment that was in use is kept for a rollback.
    others.sort(key=lambda name: name != observed.current)
    failed = [name for name in others if broken(name) or (name in lacks and name not in good)]
    kept = [name for name in others if name not in failed][: max(keep, 0)]
    retire = [name for name in others if name not in kept and name not in observed.in_use]
    reasons.extend(f"{name} is no longer needed" for name in retire)
    return EnvironmentPlan(
        target=target,
        reasons=tuple(reasons),
        discard=tuple(discard),
        build=target not in good,
        switch=observed.current != target,
        retire=tuple(retire),
    )


def _first_free(name: str, taken: set[str]) -> str:
    number = 1
    free = name
    while free in taken:
        number += 1
        free = f"{name}.{number}"
    return free


def shortcomings(request: EnvironmentRequest, environment: Environment) -> list[str]:
    """Return why the environment does not match the request; empty if it matches."""
    found = list(environment.faults)
    if environment.python and environment.python != request.python:
        found.append(f"built for Python {environment.python}, but the node has {request.python}")
    found.extend(
        f"{requirement} is requested, but {environment.packages.get(requirement.name, 'none')} is installed"
        for requirement in request.requirements
        if not requirement.met_by(environment.packages)
    )
    return found or unlocked(request, environment.packages)


def unlocked(request: EnvironmentRequest, packages: Mapping[str, str]) -> list[str]:
    """Return how the environment differs from the lock.

    Packages that every new virtual environment contains are allowed.
    """
    if not request.locked:
        return []
    found = [
        f"the lock has {name} {version}, but {packages.get(name, 'none')} is installed"
        for name, version in request.locked.items()
        if packages.get(name) != version
    ]
    return found + [
        f"{name} {version} is installed but not in the lock (add it with pytorch_packages)"
        for name, version in packages.items()
        if name not in request.locked and name not in INBORN
    ]


def describe(request: EnvironmentRequest, name: str, packages: Mapping[str, str], environments: Sequence[str]) -> str:
    """Return one side of the diff: the current environment, its pinned or locked packages, and all environments on the
    node.
    """
    lines = [f"current: {name or 'none'}"]
    names = dict.fromkeys((*(pin.name for pin in request.requirements), *request.locked))
    lines += [f"{package}: {packages.get(package, 'none')}" for package in names]
    lines += ["environments:", *(f"  - {environment}" for environment in sorted(environments))]
    return "\n".join(lines) + "\n"


def difference(
    request: EnvironmentRequest, before: Observed, plan: EnvironmentPlan, *, lock: bool, forget: Sequence[str] = ()
) -> dict[str, str]:
    """Return the diff of the current environment and of the environments on the node.

    lock: whether the wheels will be written to the lock. forget: named environments that will be removed.
    """
    was = before.environments.get(before.current) or Environment()
    wanted = dict(request.locked) or {pin.name: pin.version for pin in request.requirements}
    gone = {*plan.discard, *plan.retire}
    after = ({*before.environments} | {plan.target}) - gone
    there = describe(request, before.current or before.link, was.packages, list(before.environments))
    then = describe(request, plan.target, wanted if plan.changed else was.packages, sorted(after))
    if lock and plan.build and not request.locked:
        there, then = f"{there}the lock: environment missing\n", f"{then}the lock: every wheel with its hash\n"
    return {"before": there + "".join(f"named environment {name}\n" for name in forget), "after": then}
