"""The watcher of somebody's own detached launch, on its head node. Every verb prints one JSON object.

reach   user   says on which other nodes this user can log in from here
begin   user   makes the unit of the watcher
word    user   returns what the watcher has said
end     user   has the watcher end its launch, and itself
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
