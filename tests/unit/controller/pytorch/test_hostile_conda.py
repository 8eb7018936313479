"""Hostile conda packages, assembled by the real py-rattler: no file outside the environment is written or read.

All users can write to the outside folder and read the secret, so that these tests prove the package checks alone,
without the protection by the unprivileged account that assembles packages.
"""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
import tempfile
from ast import literal_eval
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conda_packages import BUILT_AT, make_channel
from hostile_conda import Member, build, file, link, section
from muster.pytorch.conda import CondaError, CondaPackage
from muster_controller.pytorch import conda, conda_assembly

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytest.importorskip("rattler", reason="conda packages need py-rattler on the controller (requirements/conda.txt)")

FINAL = "/opt/muster/pytorch/named/bio/envs/one"
SECRET = b"must not be read"
ENDINGS = (pytest.param("tar.bz2", marks=pytest.mark.extended), "conda")
PATHS_OUT = ("../../../outside/evil", "../../../../outside/evil")


@dataclass(frozen=True)
class Place:
    packages: Path
    outside: Path

    @property
    def secret(self) -> Path:
        return self.outside / "secret"

    def rejection(self, packages: Sequence[CondaPackage]) -> str:
        """Return the error for these packages, and check that files outside are unchanged."""
        said = ""
        try:
            with conda.put_together(section(*packages), FINAL) as archive:
                assert SECRET not in archive.path.read_bytes()
        except CondaError as problem:
            said = str(problem)
        self.assert_unchanged()
        assert said, "the packages were accepted"
        return said

    def members(self, packages: Sequence[CondaPackage]) -> dict[str, tarfile.TarInfo]:
        with conda.put_together(section(*packages), FINAL) as archive:
            assert SECRET not in archive.path.read_bytes()
            with tarfile.open(archive.path) as content:
                found = {member.name: member for member in content}
        self.assert_unchanged()
        return found

    def assert_unchanged(self) -> None:
        assert [path.name for path in self.outside.iterdir()] == ["secret"]
        assert self.secret.read_bytes() == SECRET


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Return a folder that an unprivileged account can enter. Files that escape the environment stay in it."""
    with tempfile.TemporaryDirectory(prefix="muster-test-conda-") as folder:
        root = Path(folder)
        root.chmod(0o755)
        found = Place(root / "packages", root / "outside")
        for path in (found.packages, found.outside, root / "temporary"):
            path.mkdir()
        monkeypatch.setattr(conda, "CACHE", root / "cache")
        monkeypatch.setattr(tempfile, "tempdir", str(root / "temporary"))
        found.outside.chmod(0o777)
        found.secret.write_bytes(SECRET)
        found.secret.chmod(0o644)
        yield found


@pytest.mark.parametrize("ending", ENDINGS)
def test_valid_package_is_assembled(place: Place, ending: str) -> None:
    members = [file("bin/tool", mode=0o755), link("bin/other", "tool"), link("lib/tool", "../bin/other")]
    found = place.members([build(place.packages, "sound", members, ending=ending)])
    assert (found["bin/tool"].mode & 0o777, found["bin/other"].linkname) == (0o755, "tool")


def test_real_environment_is_assembled_reproducibly(place: Place) -> None:
    """The environment has noarch Python packages, commands, and the prefix in text and binary files."""
    make_channel(place.packages)
    paths = [*sorted((place.packages / "linux-64").glob("*.bz2")), *(place.packages / "noarch").glob("*.bz2")]
    packages = [CondaPackage(path.as_uri(), hashlib.sha256(path.read_bytes()).hexdigest()) for path in paths]
    found = []
    for _ in range(2):
        with conda.put_together(section(*packages), FINAL) as archive, tarfile.open(archive.path) as content:
            found.append({member.name: read(content, member) for member in content if member.isreg()})
            assert {member.name: member.linkname for member in content if member.issym()} == {
                "bin/python": "python3.11"
            }
    assert found[0] == found[1]
    files = found[0]
    assert files["bin/greet"].startswith(f"#!{FINAL}/bin/python3.11\n".encode())
    assert files["lib/python3.11/site-packages/where.py"] == f"PLACE = '{FINAL}'\n".encode()
    assert files["share/where.bin"].startswith(f"\0{FINAL}/lib\0".encode())
    assert len(files["share/where.bin"]) == len(f"\0{BUILT_AT}/lib\0rest")
    record = files["conda-meta/greet-1.0-0.json"].decode()
    assert json.loads(record)["url"] == packages[-1].url
    assert "muster-conda-" not in record, "the record has no path of this machine"


def read(content: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = content.extractfile(member)
    assert file is not None
    return file.read()


@pytest.mark.parametrize("ending", ENDINGS)
def test_file_below_a_link_of_another_package_is_rejected(place: Place, ending: str) -> None:
    first = build(place.packages, "first", [link("lib/x", str(place.outside))], ending=ending)
    evil = file("lib/y/evil", listed={"_path": "lib/y/../x/evil"})
    second = build(place.packages, "second", [file("lib/y/other"), file("lib/x/evil", listed=None), evil])
    assert "package second-1.0-0.tar.bz2: 'lib/y/../x/evil'" in place.rejection([second, first])
    plain = build(place.packages, "second", [file("lib/x/evil")], ending=ending)
    assert "'lib/x'" in place.rejection([first, plain])


def test_file_below_a_link_inside_the_environment_is_rejected(place: Place) -> None:
    first = build(place.packages, "first", [link("lib/x", "../share"), file("share/doc")])
    second = build(place.packages, "second", [file("lib/x/evil")])
    said = place.rejection([first, second])
    assert said.endswith("'lib/x/evil' is below 'lib/x', which is a link in package first-1.0-0.tar.bz2")


@pytest.mark.parametrize("ending", ENDINGS)
def test_file_below_a_link_of_its_own_package_is_rejected(place: Place, ending: str) -> None:
    members = [link("lib/x", str(place.outside)), file("lib/x/evil")]
    place.rejection([build(place.packages, "own", members, ending=ending)])
    members = [link("lib/x", str(place.outside), listed=None), file("lib/x/evil")]
    place.rejection([build(place.packages, "own", members, ending=ending)])


@pytest.mark.parametrize(
    "path",
    ["../../../outside/evil", "../../../../outside/evil", "lib/./evil", "lib//evil", "lib/", "lib\\..\\evil", ""],
)
def test_listed_path_that_is_not_normalized_is_rejected(place: Place, path: str) -> None:
    hostile = build(place.packages, "list", [file("lib/evil", listed={"_path": path})])
    assert "is not a normalized relative path" in place.rejection([hostile])


def test_absolute_listed_path_is_rejected(place: Place) -> None:
    hostile = build(place.packages, "list", [file("lib/evil", listed={"_path": f"{place.outside}/evil"})])
    assert "is not a normalized relative path" in place.rejection([hostile])
    reading = build(place.packages, "list", [], lines=[{"_path": str(place.secret), "path_type": "hardlink"}])
    assert "is not a normalized relative path" in place.rejection([reading])


@pytest.mark.parametrize("ending", ENDINGS)
def test_link_listed_as_file_is_rejected(place: Place, ending: str) -> None:
    hostile = link("share/secret", str(place.secret), listed={"path_type": "hardlink"})
    said = place.rejection([build(place.packages, "reads", [hostile], ending=ending)])
    assert said.endswith("'share/secret' is listed as a file but is a link")
    prefix = {"path_type": "hardlink", "prefix_placeholder": "/built", "file_mode": "text"}
    hostile = link("share/secret", str(place.secret), listed=prefix)
    place.rejection([build(place.packages, "reads", [hostile], ending=ending)])


@pytest.mark.parametrize("ending", ENDINGS)
def test_unlisted_link_is_rejected(place: Place, ending: str) -> None:
    lines = [{"_path": "share/there/secret", "path_type": "hardlink"}]
    hidden = link("share/there", str(place.outside), listed=None)
    said = place.rejection([build(place.packages, "reads", [hidden], lines=lines, ending=ending)])
    assert "reads-1.0-0" in said
    said = place.rejection([build(place.packages, "reads", [file("a"), hidden], ending=ending)])
    assert said.endswith("'share/there' is in the archive but not in the package's list")


@pytest.mark.parametrize("target", ["{outside}", "../../../../x", "/etc/passwd", "deep/../../../x"])
def test_link_out_of_the_environment_is_rejected(place: Place, target: str) -> None:
    target = target.format(outside=place.outside)
    said = place.rejection([build(place.packages, "leads", [link("lib/x", target)])])
    assert f"the link 'lib/x' points outside the environment (to {target!r})" in said


def test_chain_of_links_out_of_the_environment_is_rejected(place: Place) -> None:
    """The path of each link alone stays inside the environment."""
    members = [link("a/b/c/up", "../../.."), link("a/b/c/out", "up/../../../x"), file("a/b/c/file")]
    assert "'a/b/c/out' points outside" in place.rejection([build(place.packages, "chain", members)])


def test_absolute_link_inside_the_final_folder_is_accepted(place: Place) -> None:
    members = [link("lib/x", f"{FINAL}/lib/y"), file("lib/y")]
    assert place.members([build(place.packages, "final", members)])["lib/x"].linkname == f"{FINAL}/lib/y"
    members = [link("lib/x", f"{FINAL}/../two/lib/y"), file("lib/y")]
    assert "points outside" in place.rejection([build(place.packages, "final", members)])


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ({"sha256": "0" * 64}, "'lib/tool' does not match the sha256 in the package's list"),
        ({"size_in_bytes": 3}, "'lib/tool' has 7 bytes instead of 3"),
    ],
)
def test_content_that_differs_from_the_list_is_rejected(place: Place, listed: dict[str, object], said: str) -> None:
    hostile = build(place.packages, "other", [file("lib/tool", listed=listed)])
    assert place.rejection([hostile]).endswith(said)


def test_listed_file_missing_in_the_archive_is_rejected(place: Place) -> None:
    lines = [{"_path": "lib/tool", "path_type": "hardlink"}]
    hostile = build(place.packages, "lacks", [file("lib/other")], lines=lines)
    assert place.rejection([hostile]).endswith("'lib/tool' is in the package's list but not in the archive")


@pytest.mark.parametrize("ending", ENDINGS)
def test_hard_link_to_a_file_outside_is_rejected(place: Place, ending: str) -> None:
    for target in (str(place.secret), "../" * 12 + str(place.secret)[1:]):
        hostile = Member("share/secret", SECRET, type=tarfile.LNKTYPE, target=target)
        place.rejection([build(place.packages, "hard", [hostile], ending=ending)])
    through = [
        link("share/there", str(place.outside), listed=None),
        Member("share/secret", SECRET, type=tarfile.LNKTYPE, target="share/there/secret"),
    ]
    place.rejection([build(place.packages, "hard", through, ending=ending)])


def test_hard_link_inside_the_package_becomes_a_file(place: Place) -> None:
    members = [file("bin/git", mode=0o755), Member("bin/git-add", b"content", type=tarfile.LNKTYPE, target="bin/git")]
    found = place.members([build(place.packages, "hard", members)])
    assert found["bin/git"].isreg()
    assert found["bin/git-add"].isreg()


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("kind", [tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_devices_and_pipes_are_rejected_or_become_empty_files(place: Place, kind: bytes, ending: str) -> None:
    """py-rattler is allowed to create an empty file instead of a device or pipe."""
    for hostile in (Member("lib/special", type=kind), Member("lib/special", type=kind, listed=None)):
        package = build(place.packages, "special", [file("lib/tool"), hostile], ending=ending)
        try:
            found = place.members([package])
        except CondaError:
            continue
        special = found.get("lib/special")
        assert special is None or (special.isreg() and special.size == 0)


@pytest.mark.parametrize("ending", ENDINGS)
def test_setuid_bit_is_removed(place: Place, ending: str) -> None:
    package = build(place.packages, "setuid", [file("bin/tool", mode=0o6755)], ending=ending)
    assert place.members([package])["bin/tool"].mode & 0o7000 == 0


@pytest.mark.parametrize("ending", ENDINGS)
def test_archive_member_outside_the_package_is_not_written(place: Place, ending: str) -> None:
    """One of these depths reaches the outside folder, independent of where the package is unpacked."""
    up = [file(f"{'../' * depth}outside/evil", listed=None) for depth in range(1, 9)]
    absolute = file(f"{place.outside}/evil", listed=None)
    through = [link("there", str(place.outside), listed=None), file("there/evil", listed=None)]
    for number, members in enumerate((up, [absolute], through)):
        package = build(place.packages, f"outside{number}", [file("lib/tool"), *members], ending=ending)
        try:
            assert not [name for name in place.members([package]) if "evil" in name]
        except CondaError:
            place.assert_unchanged()


def test_files_unpacked_by_an_earlier_run_are_not_used(place: Place) -> None:
    package = build(place.packages, "kept", [file("lib/tool")])
    place.members([package])
    for path in (conda.CACHE / "unpacked").rglob("lib/tool"):
        path.unlink()
        path.symlink_to(place.secret)
    poisoned = conda.CACHE / "unpacked/kept-1.0-0"
    (poisoned / "info").mkdir(parents=True, exist_ok=True)
    (poisoned / "lib").mkdir(exist_ok=True)
    if not (poisoned / "lib/tool").is_symlink():
        (poisoned / "lib/tool").symlink_to(place.secret)
    (poisoned / "lib/more").symlink_to(place.outside)
    found = place.members([package])
    assert found["lib/tool"].isreg()
    assert "lib/more" not in found


@pytest.mark.parametrize("field", ["build", "version", "name"])
def test_package_with_another_name_in_its_index_is_rejected(place: Place, field: str) -> None:
    """The record of the package would be written to conda-meta/NAME-VERSION-BUILD.json."""
    value = {"build": "/../../../outside/evil", "version": "1.0/../../../outside/evil", "name": "../../outside/evil"}
    hostile = build(place.packages, "named", [file("lib/tool")], index={field: value[field]})
    assert f"info/index.json has {field} {value[field]!r}" in place.rejection([hostile])


def test_entry_point_with_a_path_is_rejected(place: Place) -> None:
    python = build(place.packages, "python", [file("bin/python3.11")], index={"version": "1.0"})
    entry = (
        '{"noarch": {"type": "python", "entry_points": ["../../outside/evil = m:f"]}, "package_metadata_version": 1}'
    )
    hostile = build(place.packages, "named", [], info={"link.json": entry}, index={"noarch": "python"})
    assert "the entry point '../../outside/evil'" in place.rejection([python, hostile])


def test_site_packages_outside_the_environment_is_rejected(place: Place) -> None:
    index = {"python_site_packages_path": "../../outside"}
    python = build(place.packages, "python", [file("bin/python3.11")], index=index)
    evil = build(place.packages, "evil", [file("site-packages/evil")], index={"noarch": "python"})
    assert "'../../outside'" in place.rejection([python, evil])
    linked = build(place.packages, "python", [link("lib/python1.0/site-packages", "../../share"), file("share/x")])
    said = place.rejection([linked, evil])
    assert "'lib/python1.0/site-packages/evil' is below 'lib/python1.0/site-packages', which is a link" in said


@pytest.mark.parametrize("name", ["index.json", "paths.json", "link.json"])
def test_metadata_file_that_is_a_link_is_rejected(place: Place, name: str) -> None:
    hostile = link(f"info/{name}", str(place.secret), listed=None)
    assert name in place.rejection([build(place.packages, "about", [file("a"), hostile], info={name: None})])


def test_old_package_without_hashes_is_checked_against_its_list(place: Place) -> None:
    info = {"paths.json": None, "files": "bin/tool\nbin/other\n", "has_prefix": "/built text bin/tool\n"}
    members = [file("bin/tool", b"in /built/bin", mode=0o755), link("bin/other", "tool")]
    assert set(place.members([build(place.packages, "old", members, info=info)])) >= {"bin/tool", "bin/other"}
    for members in ([link("bin/tool", str(place.secret)), link("bin/other", "tool")], [file("bin/tool")]):
        place.rejection([build(place.packages, "old", members, info=info)])
    place.rejection([build(place.packages, "old", [], info={"paths.json": None})])


def test_two_packages_can_contain_the_same_file(place: Place) -> None:
    one, two = (build(place.packages, name, [file("share/both", name.encode())]) for name in ("one", "two"))
    assert "share/both" in place.members([one, two])


def test_package_checks_suffice_without_a_separate_account(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root assembles the packages itself here, so the kernel denies nothing."""
    monkeypatch.setattr(conda_assembly, "_account_for", lambda *_: None)
    place.outside.chmod(0o700)
    first = build(place.packages, "first", [link("lib/x", str(place.outside))])
    place.rejection([first, build(place.packages, "second", [file("lib/x/evil")])])
    for ending in ("tar.bz2", "conda"):
        through = [link("there", str(place.outside), listed=None), file("there/evil", listed=None)]
        for members in (through, [link("secret", str(place.secret), listed={"path_type": "hardlink"})]):
            place.rejection([build(place.packages, "third", members, ending=ending)])
        hard = Member("secret", SECRET, type=tarfile.LNKTYPE, target=str(place.secret))
        place.rejection([build(place.packages, "hard", [hard], ending=ending)])


STUB = """
import os, pathlib, sys
SECRETS = {secrets!r}
tried = [sorted({{os.getuid(), os.geteuid(), os.getgid(), os.getegid(), *os.getgroups()}})]

class package_streaming:
    def extract(source, folder):
        tried[0] = sorted({{*os.getresuid(), *os.getresgid(), *os.getgroups()}})
        for path in SECRETS:
            try:
                tried.append(pathlib.Path(path).read_text())
            except OSError as problem:
                tried.append(type(problem).__name__)
        raise RuntimeError(repr(tried))

sys.modules["rattler.package_cache"] = sys.modules["rattler.package_streaming"] = package_streaming
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can drop privileges")
def test_root_drops_privileges_before_opening_a_package(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    own = place.outside / "own"
    own.write_text("root's own")
    own.chmod(0o600)
    stub = place.packages / "rattler"
    stub.mkdir()
    (stub / "__init__.py").write_text(STUB.format(secrets=[str(own), str(place.secret), "/etc/shadow"]))
    monkeypatch.syspath_prepend(str(place.packages))
    with pytest.raises(CondaError) as refused, conda.put_together(section(build(place.packages, "x", [])), FINAL):
        pass
    (account,), *tried = literal_eval(str(refused.value).partition(": ")[2])
    assert account in conda_assembly.IDS
    assert tried == ["PermissionError", SECRET.decode(), "PermissionError"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can drop privileges")
def test_temporary_folder_closed_to_other_users_is_reported(place: Place) -> None:
    closed = Path(tempfile.gettempdir())
    closed.chmod(0o700)
    said = place.rejection([build(place.packages, "x", [file("a")])])
    assert said.endswith(". Set TMPDIR to a folder that all users can access")
    assert str(closed) in said
