"""The acceptance test of a cluster: does it train correctly, and as fast as its links and GPUs allow?

    torchrun --nnodes=2 --node-rank=K --nproc-per-node=4 --master-addr=ADDRESS acceptance --mode quick

Muster sends this folder as one file. Every rank is two processes: one that never touches a device and watches
(payload/rank.py), and one that does the work (payload/worker.py) and can be killed when it hangs.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

from payload.options import EXIT_USAGE, parse
from payload.watched import end_with


def main() -> int:
    options = parse()
    if "RANK" not in os.environ:
        print(f"It is torchrun that starts it: torchrun --standalone --nproc-per-node=2 {sys.argv[0]}", file=sys.stderr)
        return EXIT_USAGE
    if options.pipe >= 0:
        end_with(options.parent)
    # The first process of a rank has no torch in it.
    part = import_module("payload.worker" if options.pipe >= 0 else "payload.rank")
    return int(part.main(options))


if __name__ == "__main__":
    sys.exit(main())
