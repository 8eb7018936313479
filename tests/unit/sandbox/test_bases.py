"""Package sources of a base system, and trusted signatures.

sources: apt's output, or a mirror -> the sources of a release. refusals: key package -> the reason for its rejection.
failures: output of a tool -> the error message. The other tests run the bootstrap with an archive in a folder.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from cases import cases
from muster.packages.repositories import fingerprints
from muster.sandbox import bases
from muster_controller.sandbox import bases as recipe

if TYPE_CHECKING:
    from pathlib import Path

# An unknown key: a public key packet of 16 bytes, which is enough for a fingerprint.
STRANGE_KEY = bytes([0x99, 0, 16]) + bytes(range(16))
needs_apt = pytest.mark.skipif(
    not (shutil.which("dpkg-deb") and shutil.which(recipe.HELPER)), reason="this machine has no apt"
)


@cases(__file__, "sources")
def test_sources_of_a_base_match_the_case(case: dict[str, Any]) -> None:
    base = bases.BASES.get(case.get("base", "host"), bases.BaseRelease("", ""))
    if "mirror" in case:
        assert bases.ubuntu_sources(case["mirror"], base.release) == case["sources"]
    else:
        assert bases.apt_sources(case["listing"], base) == case["sources"]


@cases(__file__, "refusals")
def test_untrusted_key_package_is_rejected(case: dict[str, Any]) -> None:
    known = bases.UBUNTU_KEYRING._replace(sha256="aa", keys={"F6EC": "Ubuntu's"})
    if "sha256" in case:
        assert bases.keyring_refusal(known, case["mirror"], case["sha256"]) == case["refusal"]
    else:
        assert bases.keys_refusal(known, case["mirror"], case["fingerprints"]) == case["refusal"]


@cases(__file__, "failures")
def test_failed_tool_is_reported_in_one_sentence(case: dict[str, Any]) -> None:
    assert bases.failure(case["what"], case["where"], case["output"]) == case["sentence"]


def serve(folder: Path, known: bases.Keyring, key: bytes = STRANGE_KEY) -> tuple[str, bases.Keyring]:
    """Replace the archive's key package by one with this key. Return the mirror and the known keyring."""
    tree = folder / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(
        "Package: ubuntu-keyring\nVersion: 1\nArchitecture: all\nMaintainer: a <a@example.org>\nDescription: keys\n"
    )
    (tree / known.file).parent.mkdir(parents=True)
    (tree / known.file).write_bytes(key)
    package = folder / "archive" / known.package
    package.parent.mkdir(parents=True)
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", tree, package], check=True, capture_output=True)
    return f"file://{folder}/archive", known._replace(sha256=hashlib.sha256(package.read_bytes()).hexdigest())


@pytest.fixture
def known() -> bases.Keyring:
    """Return a keyring at a path that does not exist, because an existing file takes precedence."""
    return bases.UBUNTU_KEYRING._replace(file="usr/share/keyrings/of-these-tests-alone.gpg")


@needs_apt
def test_unknown_key_package_is_not_unpacked(tmp_path: Path, known: bases.Keyring) -> None:
    mirror, _ = serve(tmp_path, known)
    with pytest.raises(recipe.UnavailableError, match="has an unknown package"):
        recipe.ubuntu_keyring(tmp_path, mirror, known)
    assert not (tmp_path / "keys").exists()


@needs_apt
def test_unknown_key_in_the_known_package_is_rejected(tmp_path: Path, known: bases.Keyring) -> None:
    mirror, expected = serve(tmp_path, known)
    with pytest.raises(recipe.UnavailableError, match=f"contains the unknown key {fingerprints(STRANGE_KEY)[0]}"):
        recipe.ubuntu_keyring(tmp_path, mirror, expected)
    assert not (tmp_path / "ubuntu-archive-keyring.gpg").exists()


@needs_apt
def test_invalid_key_file_is_rejected(tmp_path: Path, known: bases.Keyring) -> None:
    mirror, expected = serve(tmp_path, known, b"hello")
    with pytest.raises(recipe.UnavailableError, match="cannot be read: not an OpenPGP key"):
        recipe.ubuntu_keyring(tmp_path, mirror, expected)


@needs_apt
def test_known_keys_are_accepted(tmp_path: Path, known: bases.Keyring) -> None:
    mirror, expected = serve(tmp_path, known)
    expected = expected._replace(keys={fingerprints(STRANGE_KEY)[0]: "of these tests"})
    assert recipe.ubuntu_keyring(tmp_path, mirror, expected).read_bytes() == STRANGE_KEY


@needs_apt
def test_missing_key_package_is_reported(tmp_path: Path, known: bases.Keyring) -> None:
    with pytest.raises(recipe.UnavailableError, match="Ubuntu's keys could not be downloaded from file:///nowhere: "):
        recipe.ubuntu_keyring(tmp_path, "file:///nowhere", known)


def test_base_uses_only_sources_signed_with_known_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Replace the tools with stubs that print the given output, and the keyring with an unknown one."""
    ran: list[tuple[tuple[str, ...], float]] = []
    printed = {"apt-get": "Debian|http://deb.example.org/debian|stable|bookworm|main\n"}
    code = 0

    def run(*command: str, timeout: float = 120.0, **more: str) -> subprocess.CompletedProcess[str]:
        ran.append((command, timeout))
        assert set(more) <= {"TMPDIR"}
        (tmp_path / "base.tar").touch()
        ended = code if command[0] == "unshare" else 0
        return subprocess.CompletedProcess([*command], ended, printed.get(command[0], "E: it is full\n"))

    own = bases.UBUNTU_KEYRING._replace(file=str(tmp_path / "own")[1:])
    (tmp_path / "own").touch()
    assert recipe.ubuntu_keyring(tmp_path, "", own) == tmp_path / "own"
    monkeypatch.setattr(recipe, "run", run)
    monkeypatch.setattr(recipe, "ubuntu_keyring", lambda folder, _mirror: folder / "keys.gpg")
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert recipe.main(str(tmp_path), "debian12", "", "curl", "jq") == 0
    (listing, _), (made, patience) = ran
    assert (listing[:2], patience) == (("apt-get", "indextargets"), 900.0)
    assert made[:5] == ("unshare", "--mount", "mmdebstrap", "--mode=root", "--variant=minbase")
    assert made[-3:] == ("bookworm", f"{tmp_path}/base.tar", f"{tmp_path}/sources")
    assert made[5:-3] == (
        *("--include=apt,ca-certificates,curl,jq", f"--aptopt={tmp_path}/context/apt.conf"),
        "--dpkgopt=force-unsafe-io",
    )
    assert "http://deb.example.org/debian" in (tmp_path / "sources").read_text()
    # With a mirror, the known keys are at their usual path in the new system.
    ran.clear()
    assert recipe.bootstrap(tmp_path, "ubuntu24.04", "http://mirror/ubuntu/") == tmp_path / "base.tar"
    ((made, _),) = ran
    assert made[-4].startswith(f"--customize-hook=sed -i 's#{tmp_path}/keys.gpg#/usr/share/keyrings/")
    assert f"{tmp_path}/keys.gpg" in (tmp_path / "sources").read_text()
    # Failures give one sentence and leave no files.
    code = 1
    assert (recipe.main(str(tmp_path), "debian12"), (tmp_path / "base.tar").exists()) == (1, False)
    printed["apt-get"] = ""
    assert recipe.main(str(tmp_path), "debian12") == 1
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert recipe.main(str(tmp_path), "debian12") == 1
    full, missing, tool = capsys.readouterr().err.splitlines()
    assert full == bases.failure("debian12", "this machine's package sources", "E: it is full\n")
    assert missing == (
        "debian12 cannot be created: apt on this machine has no package source for Debian. If one is configured, run"
        " apt-get update."
    )
    assert tool == "mmdebstrap is missing: run script/setup sandbox, or install it."
