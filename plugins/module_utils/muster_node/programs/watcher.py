"""Manages the watcher of a detached user launch on its head node. Every verb prints one JSON object.

reach   user   reports which other nodes the user can log in to from this node
begin   user   creates the unit of the watcher
word    user   returns the watcher's report
end     user   makes the watcher stop its launch and itself
"""

from __future__ import annotations

from ..launch import state
from ..launch.mesh import reach
from ..launch.watcher import begin, end, word
from ..tools.program import answer


def main() -> None:
    verbs = {"reach": reach, "begin": begin, "word": word, "end": end}
    answer({verb: state.in_its_manager(work) for verb, work in verbs.items()})


if __name__ == "__main__":
    main()
