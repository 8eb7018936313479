"""The options of the payload, which the role sets and a person may type, and how it ends."""

from __future__ import annotations

import argparse

MODES = ("quick", "full", "soak")
EXIT_GOOD, EXIT_WRONG, EXIT_USAGE, EXIT_NOT_DONE = 0, 1, 2, 3
ENDS = """\
Each rank ends with 0 when all was done and nothing is wrong, 1 when something is computed or sent wrongly, 2 when the
options are not understood, and 3 when a stage could not be done; with --judged, with 0 whenever it could report.
"""


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="acceptance", epilog=ENDS)
    parser.add_argument("--mode", choices=MODES, default="quick")
    parser.add_argument("--stages", default="", help="only these, with commas between them; else all of the mode")
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--steps", type=int, default=40, help="of the training at the end")
    parser.add_argument("--batch-size", type=int, default=32, help="per rank")
    parser.add_argument("--seconds", type=float, default=3600, help="that a soak goes on")
    parser.add_argument("--limit", type=float, default=0, help="seconds for each stage, instead of its own")
    parser.add_argument("--folder", default="", help="where rank 0 keeps files for a moment; a new one otherwise")
    parser.add_argument("--output", default="", help="folder for rank-N.json of each rank, and smoke.json of rank 0")
    parser.add_argument("--judged", action="store_true", help="somebody else judges what the ranks say: no table")
    # Between a rank's two processes.
    parser.add_argument("--pipe", type=int, default=-1, help=argparse.SUPPRESS)
    parser.add_argument("--parent", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--first", default="", help=argparse.SUPPRESS)
    parser.add_argument("--lost", default="", help=argparse.SUPPRESS)
    return parser.parse_args(words)
