"""What came of each node's turn in an upgrade so far: what its tasks have registered in this run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muster_controller.playbook.variables import registered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The role's own, in which each node has what came of its turn.
TURNS = ("__upgrade_turn", "__upgrade_turn_again")
TRIALS, GOOD, RED = "__upgrade_trials", "__upgrade_good", "__upgrade_red"


class Turns:
    """plan: what the step plan returned. names: all nodes."""

    def __init__(self, task_vars: Mapping[str, Any], plan: Mapping[str, Any], names: Sequence[str]) -> None:
        self.vars = task_vars
        self.plan = plan
        self.names = names

    def good(self) -> list[str]:
        return [name for name in self.names if registered(self.vars, name, GOOD).get("good")]

    def left(self) -> dict[str, str]:
        found = {}
        for name in self.names:
            for left in (registered(self.vars, name, turn).get("left", {}) for turn in TURNS):
                if name in left:
                    found[name] = str(left[name])
        return found

    def tried(self, names: Sequence[str]) -> list[set[str]]:
        """The nodes of each launch that has tried one of these."""
        launches = (registered(self.vars, name, TRIALS).get("launches", ()) for name in names)
        return [set(one) for those in launches for one in those]

    def red_before(self, batch: Sequence[str]) -> str:
        """Why nothing more is changed: a node before this batch was neither good nor left for later."""
        good, left = self.good(), self.left()
        for earlier in self.plan["batches"]:
            if set(batch) & set(earlier):
                break
            for name in earlier:
                if name not in good and name not in left:
                    return self._why_red(name, earlier)
        return ""

    def _why_red(self, name: str, batch: Sequence[str]) -> str:
        """What failed for a whole batch, only one of its nodes says."""
        said = [str(registered(self.vars, one, RED).get("red", "")) for one in (name, *batch)]
        return next(filter(None, said), "it was lost while it changed")

    def state(self) -> dict[str, Any]:
        """done, red, left, untouched, silent: in which of these each node is."""
        good, left = self.good(), self.left()
        red: dict[str, str] = {}
        untouched: list[str] = []
        for batch in self.plan["batches"]:
            missing = [name for name in batch if name not in good and name not in left]
            if red:
                untouched += [name for name in batch if name not in good]
                continue
            red.update({name: self._why_red(name, batch) for name in missing})
        done = [name for name in self.names if name in good or name in self.plan["proved"]]
        if red:
            left = {}
        return {"done": done, "red": red, "left": left, "untouched": untouched, "silent": self.plan["silent"]}
