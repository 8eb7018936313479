"""Every file in cases/resolve contains one request and the resulting sources, by default for ubuntu-24.04 on x86_64."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from cases import cases, document_of
from muster.packages.mirrors import MirrorError, MirrorsRequest, PackageOrigin, Sources, resolve
from muster.pytorch.pip import PYTORCH_WHEELS

HERE = Path(__file__).parent
FILE = Path(__file__).parents[3] / "roles/package_sources/files/mirrors.yml"
TABLE = document_of(FILE)


@cases(__file__, "resolve")
def test_resolved_package_sources_match_the_case(case: dict[str, Any]) -> None:
    system, machine = case.get("system", "ubuntu-24.04"), case.get("machine", "x86_64")
    if "error" in case:
        with pytest.raises(MirrorError) as refused:
            resolve(TABLE, MirrorsRequest(**case["request"]), system, machine)
        assert str(refused.value) == case["error"]
        return
    sources = resolve(TABLE, MirrorsRequest(**case["request"]), system, machine)
    places = {name: PackageOrigin(**place) for name, place in case["places"].items()}
    assert sources == Sources(**places, offline=case.get("offline", ""), notes=tuple(case.get("notes", ())))


def test_every_row_of_the_mirror_table_has_a_source_and_a_date() -> None:
    for profile in TABLE["profiles"].values():
        for row in profile.values():
            assert set(row) in ({"uri", "source", "seen"}, {"lacks", "seen"})


def test_mirror_table_with_another_schema_is_rejected() -> None:
    with pytest.raises(MirrorError, match="schema 2"):
        resolve({**TABLE, "schema": 2}, MirrorsRequest(), "ubuntu-24.04")


def test_upstream_hosts_are_in_the_list_of_hosts_to_allow() -> None:
    told = (FILE.parents[3] / "docs/mirrors.md").read_text()
    for row in TABLE["profiles"]["upstream"].values():
        assert f"`{urlsplit(row['uri']).hostname}`" in told


def test_pytorch_index_has_the_same_url_everywhere() -> None:
    assert TABLE["profiles"]["upstream"]["torch"]["uri"] == f"{PYTORCH_WHEELS}/{{variant}}"
