"""Sends the message about the end of a run to a webhook or a command, in a process of its own, so that a receiver that
hangs delays nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.report.notice import body, is_due, notice
from muster_controller.artifacts import runs

if TYPE_CHECKING:
    from collections.abc import Mapping

KEPT = "notice.json"  # the last message, with the answer of its receiver
SECONDS = 30  # for the receiver
# The URL may contain a secret, so it is passed on standard input, not in argv.
SENDER = """
import json, os, subprocess, sys, urllib.error, urllib.request
given = json.load(sys.stdin)
data = json.dumps(given["body"]).encode()
try:
    if given["url"]:
        asked = urllib.request.Request(given["url"], data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=given["seconds"]) as answer:
            answer.read(1000)
    else:
        subprocess.run(given["command"], input=data, check=True, timeout=given["seconds"], capture_output=True)
    problem = ""
except urllib.error.HTTPError as error:
    problem = f"HTTP status {error.code}"
except subprocess.CalledProcessError as error:
    problem = f"the command ended with {error.returncode}"
except (OSError, ValueError, subprocess.SubprocessError) as error:
    problem = f"{type(error).__name__}: {getattr(error, 'reason', '') or getattr(error, 'strerror', '')}"
new = given["kept"] + ".new"
with open(new, "w") as file:
    json.dump({**given["about"], "problem": problem}, file)
os.replace(new, given["kept"])
"""


def send(
    folder: Path,
    to: Mapping[str, Any],
    run: Mapping[str, Any],
    ending: tuple[str, str],
    verdict: Mapping[str, Any] | None,
    report: str,
) -> str:
    """Send the message of a run if one is due. Return a warning about the last message, or "".

    folder: of the cluster's artifacts. to: {url_file, command, format}, the options cluster_notify_*. ending: status
    and line.
    """
    if not (to["url_file"] or to["command"]) or run["check"]:
        return ""
    kept = folder / KEPT
    last = runs.read_json(kept)
    warning = f"The message about run {last['run']} was not sent: {last['problem']}." if last.get("problem") else ""
    said = notice(run, *ending, verdict, report)
    if not is_due(Path(run["playbook"].split(", ")[-1]).stem, said, {} if last.get("problem") else last, time.time()):
        return warning
    try:
        url = Path(to["url_file"]).expanduser().read_text(encoding="utf-8").strip() if to["url_file"] else ""
    except OSError as error:
        return f"The message about this run was not sent: {to['url_file']}: {error.strerror} (cluster_notify_url_file)."
    given = {
        "url": url,
        "command": to["command"],
        "body": body(said, to["format"]),
        "seconds": SECONDS,
        "kept": str(kept),
        "about": {"schema": 1, "key": said.key, "when": time.time(), "run": said.run},
    }
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", SENDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    if process.stdin:
        process.stdin.write(json.dumps(given).encode())
        process.stdin.close()
    return warning
