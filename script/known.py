#!/usr/bin/env python3
"""Write plugins/module_utils/muster/known/rows.py: data of roles/gpu_stack/files/versions.yml for code without YAML.

Code for nodes may use only the standard library. Run it with .venv-dev/bin/python after a change of the table; a
test compares the file with the output of --show.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "roles/gpu_stack/files/versions.yml"
TARGET = ROOT / "plugins/module_utils/muster/known/rows.py"
HEAD = '''\
"""Data on GPUs and releases for programs without a YAML parser.

Written by script/known.py from roles/gpu_stack/files/versions.yml, which names the sources.
"""

from __future__ import annotations
'''


def known() -> str:
    """Return the text of the file."""
    table = yaml.safe_load(TABLE.read_text())
    floors = {major: row["driver"] for major, row in table["cuda"]["floor"].items()}
    releases = [release for row in table["older_torch"].values() for release in row["releases"]]
    for newest, row in table["torch"].items():
        releases += [*row.get("patches", []), newest]
    rates = {generation: row["rate"] for generation, row in table["nvlink_rates"].items()}
    boards = [_board(board, rates) for gpu in table["gpus"].values() for board in gpu.get("boards", [])]
    return HEAD + "".join(
        [
            "\n# The oldest driver for each major version of CUDA.\nCUDA_FLOORS = {\n",
            *(f'    "{major}": "{driver}",\n' for major, driver in floors.items()),
            "}\n# Every release of PyTorch since 1.11.\nTORCH_RELEASES = (\n",
            *(f'    "{release}",\n' for release in releases),
            ")\n# Boards of GPUs: names, NVLinks, GB/s of one NVLink, whether a bad page is retired at once.\n",
            "BOARDS: tuple[tuple[tuple[str, ...], int | None, float, bool], ...] = (\n",
            *(f"    {board},\n" for board in boards),
            ")\n",
        ]
    )


def _board(board: dict[str, Any], rates: dict[int, float]) -> str:
    names = ", ".join(f'"{name}"' for name in board["names"]) + ("," if len(board["names"]) == 1 else "")
    return f"(({names}), {board.get('links')}, {rates[board['nvlink']]}, {board.get('offlines', True)})"


if __name__ == "__main__":
    if sys.argv[1:] == ["--show"]:
        sys.stdout.write(known())
    else:
        TARGET.write_text(known())
