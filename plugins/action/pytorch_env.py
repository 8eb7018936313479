"""Builds the environments of the nodes, each step for all environments; documented in library/pytorch_env.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muster.pytorch import environments
from muster_controller.nodes.activity import WatchedAction
from muster_controller.pytorch.conda_steps import CondaSteps
from muster_controller.pytorch.environment_steps import EnvironmentSteps, ExistingSteps, NamedSteps, OwnFolder

if TYPE_CHECKING:
    from collections.abc import Mapping


class ActionModule(WatchedAction):
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        known: Mapping[str, Any] = task_vars or {}
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        step = arguments.pop("step", "look")
        if arguments.get("users_root"):
            folder = OwnFolder(self, known, arguments)
            result.update(folder.work(step))
            arguments = arguments if result.get("failed") else folder.of_environments(result)
        else:
            result.update(EnvironmentSteps(self, known, arguments).work(step))
        kinds = kinds_of(arguments.get("environments") or {})
        if result.get("failed") or not kinds:
            return result
        named = {name: kind(self, known, arguments, name).work(step) for name, kind in kinds.items()}
        return together(result, named, step)


Kind = type[CondaSteps] | type[NamedSteps] | type[ExistingSteps]


def kinds_of(declared: Mapping[str, Mapping[str, Any]]) -> dict[str, Kind]:
    """Return the class that handles each environment. Environments with `provided` set have none."""
    found: dict[str, Kind] = dict.fromkeys(environments.built(declared), NamedSteps)
    for name, entry in declared.items():
        if environments.existing(entry):
            found[name] = ExistingSteps
        elif entry.get("conda"):
            found[name] = CondaSteps
    return found


def together(result: dict[str, Any], named: Mapping[str, dict[str, Any]], step: str) -> dict[str, Any]:
    """Combine the results into one, with the results of named environments under `named`.

    Failures are reported after all environments. Exception: if step fetch cannot download the wheels of a named
    environment, another node tries again, and the other environments are provided.
    """
    diffs = [part for part in (result.get("diff"), *(one.pop("diff", None) for one in named.values())) if part]
    found = {**result, "named": dict(named)}
    found["changed"] = any(one.get("changed") for one in (result, *named.values()))
    found["warnings"] = [text for one in (result, *named.values()) for text in one.pop("warnings", ())]
    if "plan" in result:
        own = [f"environment {name}: {why}" for name, one in named.items() for why in reasons_of(one)]
        found["plan"] = {**result["plan"], "reasons": [*result["plan"]["reasons"], *own]}
    if len(diffs) > 1:
        found["diff"] = diffs
    elif diffs:
        found["diff"] = diffs[0]
    if not all(one.get("skipped") for one in (result, *named.values())):
        found.pop("skipped", None)
        found.pop("skip_reason", None)
    failures = [str(one["msg"]) for one in named.values() if one.get("failed")]
    if failures and step != "fetch":
        found.update(failed=True, msg="\n".join(failures))
    return found


def reasons_of(result: Mapping[str, Any]) -> list[str]:
    """Return the reasons for changes from the result of an inspection."""
    return list(result.get("plan", {}).get("reasons", ()))
