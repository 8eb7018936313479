"""Drawing of mutants: reproducible, from every floor, and only in product files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from mutations.drawing import FLOORS, draw, groups, rooms

ROOT = Path(__file__).parents[3]


@pytest.fixture
def product(tmp_path: Path) -> Path:
    """Create several folders in each of three packages, and files that are not part of the product."""
    for name, text in {
        "plugins/module_utils/muster/one/a.py": "A = 1\n",
        "plugins/module_utils/muster/one/b.py": "B = 2\n",
        "plugins/module_utils/muster/two/c.py": '"""Nothing to change."""\n',
        "plugins/module_utils/muster/three/d.py": "D = 4 if A else 5\n",
        "library/e.py": "E = 6\n",
        "roles/f/tasks/main.yml": "- name: One\n  debug:\n- name: Two\n  debug:\n",
        "roles/f/meta/main.yml": "one: 1\ntwo: 2\n",
        "tests/g.py": "G = 7\n",
        "script/h.py": "H = 8\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_same_seed_draws_same_mutants(product: Path) -> None:
    drawn = draw(product, 7, 5)
    assert draw(product, 7, 5) == drawn
    assert draw(product, 7, 4) == drawn[:4]
    assert any(draw(product, seed, 5) != drawn for seed in range(3))


def test_every_product_mutation_is_drawn_once(product: Path) -> None:
    drawn = draw(product, 1, 100)
    assert Counter(one.file for one in drawn) == {
        "plugins/module_utils/muster/one/a.py": 1,
        "plugins/module_utils/muster/one/b.py": 1,
        "plugins/module_utils/muster/three/d.py": 3,
        "library/e.py": 1,
        "roles/f/tasks/main.yml": 2,
    }


def test_mutations_are_spread_over_floors_and_rooms() -> None:
    drawn = draw(ROOT, 11, 60)
    assert Counter(one.room.partition("/")[0] for one in drawn) == dict.fromkeys(FLOORS, 10)
    assert max(Counter(one.room for one in drawn).values()) == 1
    for one in drawn:
        data = (ROOT / one.file).read_bytes()
        assert one.change.applied(data) != data


def test_every_room_can_be_drawn() -> None:
    assert {floor: len(rooms(ROOT, floor)) > 2 for floor in FLOORS} == dict.fromkeys(FLOORS, True)
    assert "network" in rooms(ROOT, "controller")


def test_mutants_of_a_group_are_from_different_rooms(product: Path) -> None:
    drawn = draw(product, 1, 100)
    found = groups(drawn)
    assert sorted(one.key for group in found for one in group) == sorted(one.key for one in drawn)
    assert all(len({one.room for one in group}) == len(group) <= 3 for group in found)
    assert groups(drawn[:3])[0][0] == drawn[0]
