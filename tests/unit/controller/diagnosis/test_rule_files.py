"""Site rule files: all problems are reported at once, with file and line number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster.inventory.model import CONTROLLER_FILES
from muster_controller.diagnosis.rule_files import read_rules

if TYPE_CHECKING:
    from pathlib import Path

RULES = """\
# of this site
texts:
  - id: site.gone
    pattern: 'lost (?P<name>\\S+)'
    means: it is gone
    example: lost storage3
questions:
  - {id: site.absent, asks: "is it absent on {node}?", command: [findmnt, /storage], code: 1}
causes:
  - id: site.storage
    group: resources
    scope: node
    says: the storage is gone on {node}
    fix: Mount it
    symptoms: [site.gone]
    confirm: [site.absent]
"""


def problems(folder: Path, *names: str, commands: bool = False) -> list[str]:
    _, found = read_rules(names, commands=commands, folder=folder)
    return [str(one) for one in found]


def test_valid_rules_are_read(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(RULES)
    rules, found = read_rules(["rules.yml", "rules.yml"], commands=True, folder=tmp_path)
    assert found == []
    assert [one.id for one in rules.causes] == ["site.storage"]
    assert [one.argv for one in rules.commands] == [("findmnt", "/storage")]
    assert read_rules([], commands=True) == (type(rules)(), [])


def test_problems_are_reported_with_line_numbers(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(RULES.replace("scope: node", "scope: nod").replace("lost s", "gone s"))
    (tmp_path / "other.yml").write_text("texts:\n  - id: site.a\n    id: site.b\n    patern: x\ntexts: []\n")
    (tmp_path / "no.yml").write_text("texts: [\n  - }\n")
    (tmp_path / "empty.yml").write_text("")
    scopes = "process, node, link, pair, config, code, unknown"
    assert problems(tmp_path, "rules.yml", "other.yml", "no.yml", "nowhere.yml", "empty.yml") == [
        "other.yml line 3: duplicate key id, first used in line 2. Merge the two entries, or remove one.",
        "other.yml line 5: duplicate key texts, first used in line 1. Merge the two entries, or remove one.",
        "no.yml line 2: invalid YAML: expected the node content, but found '-'. Correct it.",
        f"nowhere.yml: the site rules cannot be read (No such file or directory). {CONTROLLER_FILES}.",
        "rules.yml line 4, texts 1 (site.gone): the pattern does not match the example. Correct either one.",
        f"rules.yml line 12, causes 1 (site.storage): scope is nod (did you mean node?). Set it to one of {scopes}.",
        "empty.yml: not a YAML mapping. Begin with one of texts, questions, causes.",
    ]


def test_writable_rule_file_with_commands_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(RULES)
    (tmp_path / "rules.yml").chmod(0o666)
    assert problems(tmp_path, "rules.yml") == []
    [found] = problems(tmp_path, "rules.yml", commands=True)
    assert found == (
        f"rules.yml: {tmp_path}/rules.yml is writable by all users; other users can thereby change"
        " what runs on the nodes. Remove the write permission (chmod go-w, chown), or move the file."
    )


@pytest.mark.parametrize("text", [b"\xff\xfe", b"a: &a [*a]", b"texts: !!python/object:os.system {}", b"[" * 5000])
def test_invalid_file_is_reported(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "rules.yml").write_bytes(text)
    found = problems(tmp_path, "rules.yml")
    assert found
    assert all(one.startswith("rules.yml") for one in found)
