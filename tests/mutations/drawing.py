"""Draw mutants from a seed. All floors (areas of the product) get equal shares, and the rooms (packages) of a floor
take turns."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from typing import TYPE_CHECKING

from mutations import python_changes, yaml_changes
from mutations.mutant import Candidate, Mutant, mutant

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

YAML_OF_A_ROLE = ("tasks", "handlers", "vars", "defaults")
# Floor: folder and patterns. A room is the first folder or file of a pattern's match.
FLOORS = {
    "decisions": ("plugins/module_utils/muster", ["**/*.py"]),
    "nodes": ("plugins/module_utils/muster_node", ["**/*.py"]),
    "controller": ("plugins/plugin_utils/muster_controller", ["**/*.py"]),
    "plugins": ("plugins", ["action/*.py", "callback/*.py"]),
    "modules": ("library", ["*.py"]),
    "roles": ("roles", [*(f"*/{part}/**/*.yml" for part in YAML_OF_A_ROLE), "*/files/**/*.py"]),
}
WHOLE_NAME = {"plugins", "modules"}  # floors whose rooms are files
TRIES = 20  # files of a room, and turns of a floor

Rooms = dict[str, list[str]]


def rooms(root: Path, floor: str) -> Rooms:
    """Return the files of each room on a floor, in a stable order."""
    folder, patterns = FLOORS[floor]
    found: Rooms = defaultdict(list)
    for path in sorted({path for pattern in patterns for path in (root / folder).glob(pattern)}):
        below = path.relative_to(root / folder)
        found[str(below) if floor in WHOLE_NAME else below.parts[0]].append(str(path.relative_to(root)))
    return dict(found)


def candidates(name: str, data: bytes) -> list[Candidate]:
    return python_changes.candidates(data) if name.endswith(".py") else yaml_changes.candidates(data)


def draw(root: Path, seed: int, count: int) -> list[Mutant]:
    """Return this number of distinct mutants. Successive mutants are on different floors."""
    chance = random.Random(seed)
    of_floors = {floor: of_floor for floor in FLOORS if (of_floor := rooms(root, floor))}
    floors = list(of_floors)
    chance.shuffle(floors)
    turns = {floor: turn(of_floors[floor], chance) for floor in floors}
    found: dict[str, Mutant] = {}
    empty: set[str] = set()
    for floor in itertools.cycle(floors):
        if len(found) >= count or len(empty) == len(floors):
            break
        # A room may have nothing to mutate, e.g. the documentation of a module implemented as an action plugin.
        tried = itertools.islice(turns[floor], TRIES * len(of_floors[floor]))
        fresh = (one_of(root, f"{floor}/{room}", files, chance) for room, files in tried)
        one = next((one for one in fresh if one and one.key not in found), None)
        if one:
            found[one.key] = one
        else:
            empty.add(floor)
    return list(found.values())


def turn(of_floor: Rooms, chance: random.Random) -> Iterator[tuple[str, list[str]]]:
    """Yield the rooms of a floor in random order. Each room occurs once before any room is repeated."""
    while True:
        names = sorted(of_floor)
        chance.shuffle(names)
        for name in names:
            yield name, of_floor[name]


def one_of(root: Path, room: str, files: list[str], chance: random.Random) -> Mutant | None:
    """Draw a file, then a kind of mutation that the file allows, then a mutation of that kind."""
    for name in chance.sample(files, min(len(files), TRIES)):
        data = (root / name).read_bytes()
        kinds: dict[str, list[Candidate]] = defaultdict(list)
        for candidate in candidates(name, data):
            kinds[candidate.change.kind].append(candidate)
        for kind in chance.sample(sorted(kinds), len(kinds)):
            of_kind = chance.sample(kinds[kind], len(kinds[kind]))
            if drawn := next((one.change for one in of_kind if one.is_one()), None):
                return mutant(name, room, data, drawn)
    return None


def groups(mutants: list[Mutant], size: int = 3) -> list[list[Mutant]]:
    """Divide the mutants into groups, in order. The mutants in a group are from different rooms."""
    waiting, found = list(mutants), []
    while waiting:
        group: list[Mutant] = []
        for one in list(waiting):
            if len(group) < size and one.room not in [other.room for other in group]:
                group.append(one)
                waiting.remove(one)
        found.append(group)
    return found
