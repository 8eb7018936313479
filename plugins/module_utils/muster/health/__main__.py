"""The verdict on a node from what was looked at there, without Ansible: as a zipapp, a node can judge itself.

Reads {"looks": what muster_node/looks/health.py returns, "request": the options of nccl_health} as JSON from standard
input, and prints {facts, traits, findings, verdict} as nccl_health returns them.
"""

from __future__ import annotations

import json
import sys

from .node import judge_looks


def main() -> None:
    given = json.load(sys.stdin)
    json.dump(judge_looks(given["looks"], given["request"]), sys.stdout)


if __name__ == "__main__":
    main()
