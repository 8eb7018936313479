"""Compute a node's verdict without Ansible. This module is the entry point of a zipapp that runs on the node.

Read {"looks": the result of muster_node/looks/health.py, "request": the options of nccl_health} as JSON from standard
input, and print {facts, traits, findings, verdict} as nccl_health returns them.
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
