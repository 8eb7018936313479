"""What the command replaces itself with: ansible-playbook, with the exit statuses of the command."""

from __future__ import annotations

import sys

from ansible.cli.playbook import PlaybookCLI

DONE, FAILED, USAGE, DEGRADED, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 4, 130
# By the exit status of ansible-playbook.
STATUSES = {0: DONE, 4: UNREACHABLE, 5: USAGE, 99: INTERRUPTED}


def main() -> None:
    try:
        PlaybookCLI.cli_executor(sys.argv)
    except SystemExit as ended:
        raise SystemExit(status(ended.code)) from None


def status(code: object) -> int:
    """Return the command's exit status. A gate that a degraded cluster did not pass has its own."""
    output = sys.modules.get("muster_controller.playbook.json_output")
    if code == 2 and output is not None and output.JSON_OUTPUT.status == "degraded":
        return DEGRADED
    return STATUSES.get(code, FAILED) if isinstance(code, int) else FAILED


if __name__ == "__main__":
    main()
