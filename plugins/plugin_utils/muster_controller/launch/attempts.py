"""Starts another attempt of a failed launch if the attempt could succeed, or reports why no further attempt is made.

The decisions are made by module_utils/muster/launch/attempts.py. All times are on the monotonic clock.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from muster.diagnosis.findings import named
from muster.launch import attempts, fit
from muster.launch.answers import reader
from muster.launch.attempts import LaunchAttempt, Seat
from muster.launch.manager import whose
from muster.launch.plan import PORTS, PlanError
from muster.launch.planned import USER, LaunchPlan
from muster.launch.watch import pace
from muster.verdict.reading import UnusableError
from muster_controller.artifacts.ids import fresh_id
from muster_controller.nodes.program import NodeProgram
from muster_controller.playbook.interruption import Interruption

from .launch_messages import LaunchMessages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from muster.launch.fit import Fit, FitRequest
    from muster.launch.outcome import LaunchRecord
    from muster.launch.plan import LaunchRequest, NodeSpec
    from muster_controller.playbook.node_error import Way

    # Arguments: the plan, the ids of earlier attempts, and the remaining seconds of the time limit (0: unlimited).
    Run = Callable[[LaunchPlan, tuple[str, ...], int], tuple[dict[str, Any], LaunchRecord]]

PROGRAM = NodeProgram("launch")
LOOK_TIMEOUT = 45.0
FREE_SECONDS = 60.0  # for the driver to free memory, and for units to end
PAUSE = 3.0


@dataclass
class Attempts:
    """A launch with all of its attempts.

    build: builds a plan, like build_plan. run: runs one attempt and returns the result. connect: connects to a node.
    """

    request: LaunchRequest
    inventory: Sequence[NodeSpec]
    build: Callable[[LaunchRequest, Sequence[NodeSpec]], LaunchPlan]
    run: Run
    connect: Callable[[str], Way]
    say: Callable[[str], None]
    interruption: Interruption = field(default_factory=Interruption)
    history: list[LaunchAttempt] = field(default_factory=list)
    went_on: list[str] = field(default_factory=list)
    out: set[str] = field(default_factory=set)  # nodes that caused a failure
    first: LaunchPlan = field(init=False)  # of the first attempt; once it was run, the plan as its user ran it
    newest: float = 0.0  # time at which the newest complete checkpoint was written

    def __post_init__(self) -> None:
        self.options = self.request.options
        self.began = time.monotonic()
        self.specs = {spec.name: spec for spec in self.inventory}
        self.asked: LaunchMessages | None = None

    def see_through(self, plan: LaunchPlan) -> dict[str, Any]:
        """Run attempts until one succeeds or no other attempt could succeed. Return the last result, with the overall
        verdict."""
        with self.interruption:
            try:
                return self.all_of_them(self.from_checkpoint(plan))
            finally:
                if self.asked:
                    self.asked.close()

    def all_of_them(self, plan: LaunchPlan) -> dict[str, Any]:
        while True:
            earlier = tuple(attempt.launch_id for attempt in self.history)
            result, record = self.run(plan, earlier, self.seconds_left())
            self.first = self.first if earlier else record.plan
            number = len(self.history) + 1
            blamed = named(result["verdict"], record.plan.names)
            attempt = attempts.ended(record, result["verdict"], number, self.newest, blamed)
            self.history.append(attempt)
            if attempts.final(record, attempt):
                return self.whole(result, "")
            following = self.following(record, attempt)
            if isinstance(following, str):
                return self.whole(result, following)
            if self.interruption.came:  # while the next attempt was planned
                return self.whole(result, self.interruption.decision().text)
            plan = following

    def whole(self, result: dict[str, Any], given_up: str) -> dict[str, Any]:
        """Return the overall result. given_up: why there is no other attempt, although restarts are allowed."""
        given_up = given_up if self.options.restarts else ""
        if given_up:
            self.say(f"no further attempt: {given_up}")
        if given_up or self.went_on:
            verdict = attempts.whole_verdict(result["verdict"], self.history, self.went_on, given_up)
            result = {**result, "verdict": verdict}
        return {**result, "attempts": [vars(attempt) for attempt in self.history]}

    # ------------------------------------------------------------ between two attempts

    def following(self, record: LaunchRecord, attempt: LaunchAttempt) -> LaunchPlan | str:
        """Return the plan of the next attempt, or why no attempt follows."""
        if attempt.number > self.options.restarts:
            return f"launch_restarts allows {self.options.restarts}"
        if left := attempts.stays(record):
            return left
        self.say(f"attempt {attempt.number} failed: {attempt.summary}")
        seen = self.look()
        current = [seat for seat in self.seats() if seat.node in attempt.nodes]
        checkpoint, _ = attempts.newest(seen, list(self.names()))
        attempt.after = checkpoint["time"] if checkpoint else 0.0
        if why := attempts.futile(self.history, self.options):
            return why
        self.wait_for_the_end(record, seen)
        seen = self.look_until_free(seen)
        if self.interruption.came:
            return self.interruption.decision().text
        if self.options.time_limit and self.seconds_left() <= 1:
            return "the time limit of all attempts is reached (launch_time_limit)"
        self.out |= set(attempt.failed)
        current.sort(key=lambda seat: attempt.nodes.index(seat.node))
        used = {seat.node for seat in current}
        spares = [seat for seat in self.seats() if seat.node in self.options.spares and seat.node not in used]
        unfit = {seat.node: self.unfit(seat, seen) for seat in self.seats()}
        nodes, said = attempts.next_nodes(current, self.out, unfit, spares, self.options)
        if not nodes:
            return said
        return self.planned_next(nodes, said, seen)

    def planned_next(self, nodes: list[str], said: str, seen: dict[str, Fit | str]) -> LaunchPlan | str:
        checkpoint, holders = attempts.newest(seen, nodes)
        self.newest = checkpoint["time"] if checkpoint else 0.0
        path = checkpoint["path"] if checkpoint else ""
        number = len(self.history) + 1
        try:
            plan = self.planned(attempts.led_by(nodes, holders), number, fresh_id(), path)
        except PlanError as problem:
            return " ".join(problem.problems)
        begins = f"{said}, from {path}" if path else said
        self.went_on.append(f"with attempt {number} ({plan.launch_id}): {begins}")
        self.say(f"attempt {number} of at most {self.options.restarts + 1}: {begins}")
        self.say_where(path, holders, nodes)
        return plan

    def say_where(self, path: str, holders: Sequence[str], nodes: Sequence[str]) -> None:
        if said := attempts.alone(path, holders, nodes):
            self.say(said)

    def planned(self, nodes: Sequence[str], number: int, launch_id: str, checkpoint: str) -> LaunchPlan:
        """Return the plan of an attempt. The order of these nodes determines the ranks. Raises PlanError."""
        port = self.request.cluster.master_port + (number - 1) % PORTS
        request = replace(
            self.request,
            options=replace(self.options, nodes=[], first_nodes=0, spares=[]),
            cluster=replace(self.request.cluster, master_port=port),
            launch_id=launch_id,
            attempt=number,
            work_id=self.request.work_id or self.request.launch_id,
            checkpoint=checkpoint,
        )
        return self.build(request, [self.specs[name] for name in nodes])

    def wait_for_the_end(self, record: LaunchRecord, seen: dict[str, Fit | str]) -> None:
        """For nodes that have not confirmed the end of a launch, wait until its processes must have exited."""
        unclear = [name for name in (*record.unseen, *record.leftovers) if runs_still(seen.get(name, ""))]
        if not unclear:
            return
        lease = pace(len(record.plan.nodes), self.options.silence_timeout).lease
        until = attempts.certain_end(record, lease, self.options.failure_timeout)
        left = until - time.monotonic()
        if left > 0:
            self.say(f"waiting {left:.0f} s until the launch ends on {', '.join(unclear)} because its lease expires")
        while time.monotonic() < until and not self.interruption.came:
            time.sleep(0.1)

    def look_until_free(self, seen: dict[str, Fit | str]) -> dict[str, Fit | str]:
        """Inspect the nodes repeatedly until memory has been freed and units have ended, or until a timeout."""
        until = time.monotonic() + FREE_SECONDS
        while any(map(attempts.may_pass, seen.values())) and time.monotonic() < until and not self.interruption.came:
            time.sleep(PAUSE)
            seen = self.look()
        return seen

    # ------------------------------------------------------------ inspections

    def from_checkpoint(self, plan: LaunchPlan) -> LaunchPlan:
        """Return the first plan. If an absolute checkpoint path is configured, the plan starts from an existing
        checkpoint."""
        self.first, pattern = plan, self.options.checkpoints
        nodes = plan.names
        if not pattern or not (pattern.startswith("/") or self.options.chdir):
            return plan
        self.first = self.as_whoever_logs_in(plan, nodes)
        checkpoint, holders = attempts.newest(self.look(nodes, gpus=False), nodes)
        if checkpoint is None:
            return plan
        self.newest = checkpoint["time"]
        self.say(f"the newest complete checkpoint is {checkpoint['path']}")
        self.say_where(checkpoint["path"], holders, nodes)
        return self.planned(attempts.led_by(nodes, holders), 1, plan.launch_id, checkpoint["path"])

    def as_whoever_logs_in(self, plan: LaunchPlan, nodes: Sequence[str]) -> LaunchPlan:
        """If the launch is a user launch, return its plan with the user set, which an inspection requires."""
        messages = self.messages()
        for name in nodes:
            messages.ask(name, "identity", {})
        known = messages.gather("identity", nodes, LOOK_TIMEOUT, lambda _: None, lambda: self.interruption.came)
        shape = reader(plan.ranks)
        seen = {}
        for name, answer in known.items():
            with suppress(UnusableError):
                seen[name] = shape(name, "identity", answer.data)[0]
        who, against = whose(self.options.run_as, seen)
        if not who.own or against:
            return plan  # the first attempt reports the problem
        return replace(plan, user=who.user, manager=USER)

    def look(self, nodes: Sequence[str] = (), *, gpus: bool | None = None) -> dict[str, Fit | str]:
        """Return the response of each node, or why the node did not respond."""
        names = list(nodes) or list(self.names())
        messages = self.messages()
        messages.own = self.first.is_own
        for name in names:
            messages.ask(name, "fit", {**self.fit_request(self.first, gpus=gpus)}, privileged=True)
        answers = messages.gather("fit", names, LOOK_TIMEOUT, lambda _: None, lambda: self.interruption.came)
        found: dict[str, Fit | str] = {}
        for name in names:
            answer = answers.get(name)
            try:
                found[name] = fit.read(answer.data) if answer and answer.data is not None else no_answer(answer)
            except UnusableError as exc:
                found[name] = f"invalid response: {exc}"
        return found

    def fit_request(self, plan: LaunchPlan, *, gpus: bool | None) -> FitRequest:
        return {
            "user": plan.user,
            "earlier": [attempt.launch_id for attempt in self.history],
            "gpus": plan.backend == "nccl" if gpus is None else gpus,
            "checkpoints": self.options.checkpoints,
            "work_dir": self.options.chdir or plan.head.work_dir,
        }

    def messages(self) -> LaunchMessages:
        if self.asked is None:
            self.asked = LaunchMessages({name: self.connect(name) for name in self.names()}, PROGRAM)
            self.asked.open()
        return self.asked

    def unfit(self, seat: Seat, seen: dict[str, Fit | str]) -> str:
        look = seen.get(seat.node, "not inspected")
        return attempts.unfit(look, seat.nproc, gpus=self.first.backend == "nccl", shared=self.options.shared)

    # ------------------------------------------------------------ nodes, slots and time

    def names(self) -> list[str]:
        """Return the nodes of the first attempt, and the spares."""
        return [*self.first.names, *self.options.spares]

    def seats(self) -> list[Seat]:
        return [Seat(name, self.options.nproc_per_node or self.specs[name].nproc) for name in self.names()]

    def seconds_left(self) -> int:
        """Return the remaining time in seconds before the time limit, or 0 if there is no limit."""
        if not self.options.time_limit:
            return 0
        return max(1, round(self.options.time_limit - (time.monotonic() - self.began)))


def runs_still(look: Fit | str) -> bool:
    """Return whether a node has not confirmed that all attempts have ended."""
    return isinstance(look, str) or bool(look["running"])


def no_answer(answer: Any) -> str:
    return f"no response: {answer.error}" if answer and answer.error else "no response"
