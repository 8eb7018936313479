"""Which mutants a seed draws: each floor of the product has the same share, and each room of a floor has its turn."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING

from mutations import python_changes, yaml_changes
from mutations.mutant import Change, Mutant, mutant

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

YAML_OF_A_ROLE = ("tasks", "handlers", "vars", "defaults")
# Each with its patterns; the folder or file below the part without a pattern is the room.
FLOORS = {
    "decisions": ("plugins/module_utils/muster", ["**/*.py"]),
    "nodes": ("plugins/module_utils/muster_node", ["**/*.py"]),
    "controller": ("plugins/plugin_utils/muster_controller", ["**/*.py"]),
    "plugins": ("plugins", ["action/*.py", "callback/*.py"]),
    "modules": ("library", ["*.py"]),
    "roles": ("roles", [*(f"*/{part}/**/*.yml" for part in YAML_OF_A_ROLE), "*/files/**/*.py"]),
}
WHOLE_NAME = {"plugins", "modules"}  # a room is a file there
TRIES = 20  # files of a room that has hardly anything to change

Rooms = dict[str, list[str]]


def rooms(root: Path, floor: str) -> Rooms:
    """Return the files of each room of a floor, in an order that does not depend on the file system."""
    folder, patterns = FLOORS[floor]
    found: Rooms = defaultdict(list)
    for path in sorted({path for pattern in patterns for path in (root / folder).glob(pattern)}):
        below = path.relative_to(root / folder)
        found[str(below) if floor in WHOLE_NAME else below.parts[0]].append(str(path.relative_to(root)))
    return dict(found)


def changes(name: str, data: bytes) -> list[Change]:
    return python_changes.changes(data) if name.endswith(".py") else yaml_changes.changes(data)


def draw(root: Path, seed: int, count: int) -> list[Mutant]:
    """Return so many mutants, no two of them equal. Neighbours are on different floors."""
    chance = random.Random(seed)
    floors = [floor for floor in FLOORS if rooms(root, floor)]
    chance.shuffle(floors)
    turns = {floor: turn(rooms(root, floor), chance) for floor in floors}
    found: dict[str, Mutant] = {}
    tried = 0
    while len(found) < count and tried < count * TRIES:
        floor = floors[tried % len(floors)]
        tried += 1
        room, files = next(turns[floor])
        one = one_of(root, f"{floor}/{room}", files, chance)
        if one:
            found.setdefault(one.key, one)
    return list(found.values())


def turn(of_floor: Rooms, chance: random.Random) -> Iterator[tuple[str, list[str]]]:
    """Yield the rooms of a floor in random order, each once before any comes again."""
    while True:
        names = sorted(of_floor)
        chance.shuffle(names)
        for name in names:
            yield name, of_floor[name]


def one_of(root: Path, room: str, files: list[str], chance: random.Random) -> Mutant | None:
    """Draw a file, a kind of mutation that it has, and one of that kind."""
    for name in chance.sample(files, min(len(files), TRIES)):
        data = (root / name).read_bytes()
        kinds: dict[str, list[Change]] = defaultdict(list)
        for change in changes(name, data):
            kinds[change.kind].append(change)
        if kinds:
            return mutant(name, room, data, chance.choice(kinds[chance.choice(sorted(kinds))]))
    return None


def groups(mutants: list[Mutant], size: int = 3) -> list[list[Mutant]]:
    """Put mutants together whose rooms differ, the earliest first."""
    waiting, found = list(mutants), []
    while waiting:
        group: list[Mutant] = []
        for one in list(waiting):
            if len(group) < size and one.room not in [other.room for other in group]:
                group.append(one)
                waiting.remove(one)
        found.append(group)
    return found
