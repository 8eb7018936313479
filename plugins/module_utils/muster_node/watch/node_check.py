"""muster-node-check: a node checks its own health, without a controller.

Exit status: 0 ok, also with warnings; 1 a fault of the node; 2 wrong options; 3 unknown; 4 a fault that a user caused;
5 the check failed itself. With --slurm: 1 if no job may start, otherwise 0.
The first line of the output is the reason, which begins with "node:", "user:" or "unknown:".
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.muster.gpu_info.processes import holders
from ansible.module_utils.muster.health.node import judge_looks
from ansible.module_utils.muster.launch.unit import unit_properties
from ansible.module_utils.muster.verdict.finding import as_lines, findings_in
from ansible.module_utils.muster.watch import answer as answers
from ansible.module_utils.muster.watch.measured import metrics

from ..looks.gpu import driver_holders
from ..looks.health import WITHOUT_UNIT, look
from ..tools import check_results, files, process
from . import slurm

REQUEST = "/etc/muster/node-check.json"
LOCK = "/run/muster-node-check.lock"
STOP_TIMEOUT = 5  # seconds; the processes in the units of the check end on the first signal
USAGE, CRASHED = 2, 5


def main() -> None:
    options = argparse.ArgumentParser(
        prog="muster-node-check",
        description="Check the health of this node.",
        epilog="Exit status: 0 ok, 1 node fault, 2 wrong options, 3 unknown, 4 fault caused by a user, 5 crash.",
    )
    options.add_argument(
        "--form",
        choices=answers.FORMS,
        default=answers.SHORT,
        help="short: about 1 s, without starting PyTorch. full: about 10 s. scheduled: as the timer runs it",
    )
    options.add_argument("--json", action="store_true", help="print the result with its findings as JSON")
    options.add_argument("--keep", action="store_true", help="store the result and the metrics (as root)")
    options.add_argument("--slurm", choices=slurm.HOOKS, help="act as this hook of slurmd: drain or resume the node")
    given = options.parse_args()
    try:
        status = run(given)
    except Exception as error:  # any other status would drain the node, or look like a fault of the node
        sys.stderr.write(f"muster-node-check: the check failed: {error!r}\n")
        status = CRASHED
    # Slurm drains a node if its prolog fails, whatever the reason.
    sys.exit(0 if given.slurm and status != slurm.HOLDS else status)


def run(given: argparse.Namespace) -> int:
    """Check the node, and return the exit status."""
    try:
        request = json.loads(files.read(REQUEST))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"muster-node-check: {REQUEST} cannot be read: {error}. Run site.yml with --tags watch\n")
        return USAGE
    os.umask(0o022)
    form = given.form
    if form == answers.SCHEDULED:
        only_one()
        now = time.time()
        last, nightly = check_results.last(), check_results.last_full()
        wanted = answers.due(last, nightly, busy=is_busy(), now=now, hour=time.localtime(now).tm_hour)
        if not wanted.form:
            sys.stdout.write(f"not checked: {wanted.why}\n")
            return 0
        form = wanted.form
    answer, report, text = check(request["health"], form)
    kept = True
    if given.keep or given.form == answers.SCHEDULED:
        try:
            check_results.keep(answer.as_dict(), {**report, "interval": request["interval"]})
            if request["metrics"] and Path(request["metrics"]).is_dir():
                check_results.write_metrics(request["metrics"], text)
        except OSError as error:  # a full disk, above all
            sys.stderr.write(f"muster-node-check: the result cannot be stored: {error}\n")
            kept = False
    show(answer, report, as_json=given.json)
    if given.slurm:
        return slurm.act(answer, given.slurm)
    return answer.exit_status if kept else CRASHED


def only_one() -> None:
    """Exit if another scheduled check is running. The kernel releases the lock with the process."""
    handle = os.open(LOCK, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.stdout.write("not checked: another check is running\n")
        sys.exit(0)


def is_busy() -> bool:
    """Return whether a launch or another program, except daemons of the driver, uses the node's GPUs."""
    return bool(process.in_launches() or holders(driver_holders()["holders"], 0.0))


def check(health: dict[str, Any], form: str) -> tuple[answers.CheckAnswer, dict[str, Any], str]:
    """Return the answer, the findings and skipped checks, and the metrics."""
    began = time.monotonic()
    full = form == answers.FULL
    request = {**health, "collective": full and health["collective"], "code": health["code"] if full else []}
    looks = look(request, unit_properties(request["user"], "/", STOP_TIMEOUT), {} if full else WITHOUT_UNIT)
    judged = judge_looks(looks, request)
    answer = answers.answer(
        judged["verdict"], node=request["node"], form=form, when=time.time(), seconds=time.monotonic() - began
    )
    report = {"findings": judged["findings"], "skipped": judged["verdict"]["coverage"]["skipped"]}
    return answer, report, metrics(answer, judged)


def show(answer: answers.CheckAnswer, report: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps({**answer.as_dict(), **report}) + "\n")
        return
    warned = f", {len(answer.warnings)} warnings" if answer.warnings else ""
    sys.stdout.write(f"{answer.reason or f'ok: {answer.ran} checks{warned}'}\n")
    problems = [one for one in findings_in(report) if one.status != "pass"]
    sys.stdout.write("".join(f"  {line}\n" for line in as_lines(problems)))


if __name__ == "__main__":
    main()
