"""Files of an apt repository, existing entries, and trusted keys."""

from __future__ import annotations

import base64

import pytest

from muster.packages import repositories

# Made for this test with: gpg --quick-generate-key 'Stand-in for a test <nobody@example.org>' ed25519
KEY = b"""\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawHj6BYJKwYBBAHaRw8BAQdAcHfrz6rJGhIQN5Fi8jCo7FF8pwoEWDs5DWNU
EkYBcZG0KFN0YW5kLWluIGZvciBhIHRlc3QgPG5vYm9keUBleGFtcGxlLm9yZz6I
kAQTFggAOBYhBDYX9o16GxlYVzaPptIioB8O2UQSBQJrAePoAhsDBQsJCAcCBhUK
CQgLAgQWAgMBAh4BAheAAAoJENIioB8O2UQSwXQA/RpRFcGImqPnYjuXn6YNkWxk
LopGmWx3fpPN1NULpew9AP9no/gka+9D3Hf/R4O/fjWpUSyS4FTXRQD8SzWeZLEa
Bw==
=wDgz
-----END PGP PUBLIC KEY BLOCK-----
"""
FINGERPRINT = "3617F68D7A1B195857368FA6D222A01F0ED94412"
BINARY = base64.b64decode("".join(KEY.decode().split("\n\n")[1].split("\n=")[0].split()))
CUDA = repositories.AptRepository(
    "nvidia",
    "https://example.org/cuda/ubuntu2404/x86_64/",
    fingerprints=(FINGERPRINT,),
    label="NVIDIA CUDA",
    priority=600,
)
DEBIAN = repositories.AptRepository(
    "debian",
    "http://example.org/debian",
    suites=("bookworm", "bookworm-updates"),
    components=("contrib", "non-free"),
    keyring="/usr/share/keyrings/debian-archive-keyring.gpg",
)


@pytest.mark.parametrize(
    "key",
    [
        KEY,
        BINARY,
        KEY.replace(b"\n", b"\r\n"),
        KEY.replace(b"BLOCK-----\n\n", b"BLOCK-----\nVersion: GnuPG v2.0.22\n\n"),
    ],
    ids=["armoured", "binary", "of Windows", "with a header"],
)
def test_fingerprints_match_gpg(key: bytes) -> None:
    assert repositories.fingerprints(key) == [FINGERPRINT]
    assert CUDA.trusts(key)


def test_key_file_with_an_unknown_key_is_rejected() -> None:
    other = bytearray(BINARY)
    other[20] ^= 1
    assert len(set(repositories.fingerprints(BINARY + bytes(other)))) == 2
    assert not CUDA.trusts(BINARY + bytes(other))
    assert not CUDA.trusts(bytes(other))


@pytest.mark.parametrize(
    "key",
    [b"<html>moved</html>", BINARY[:40], BINARY[:1], KEY.replace(b"mDME", b"m(ME")],
    ids=["a web page", "cut off", "cut off early", "damaged"],
)
def test_invalid_key_is_not_trusted(key: bytes) -> None:
    with pytest.raises(repositories.KeyFileError):
        repositories.fingerprints(key)
    assert not CUDA.trusts(key)


def test_empty_key_is_not_trusted() -> None:
    assert repositories.fingerprints(b"") == []
    assert not repositories.AptRepository("x", "http://example.org").trusts(b"")
    assert repositories.AptRepository("x", "http://example.org").trusts(KEY)


def test_files_of_a_flat_repository_are_rendered() -> None:
    assert CUDA.texts == {
        "/etc/apt/sources.list.d/muster-nvidia.sources": (
            "# Written by Muster (role gpu_stack).\n"
            "Types: deb\nURIs: https://example.org/cuda/ubuntu2404/x86_64/\nSuites: /\n"
            "Signed-By: /etc/apt/keyrings/muster-nvidia.asc\n"
        ),
        "/etc/apt/preferences.d/muster-nvidia": (
            "# Written by Muster (role gpu_stack).\nPackage: *\nPin: release l=NVIDIA CUDA\nPin-Priority: 600\n"
        ),
    }
    assert CUDA.list_names[0] == "example.org_cuda_ubuntu2404_x86%5f64_InRelease"


def test_repository_that_uses_an_existing_keyring_needs_only_one_file() -> None:
    (text,) = DEBIAN.texts.values()
    assert "Suites: bookworm bookworm-updates\nComponents: contrib non-free\nSigned-By: /usr/share" in text
    assert DEBIAN.list_names[2] == "example.org_debian_dists_bookworm-updates_InRelease"
    assert DEBIAN.lacks(DEBIAN.texts) == []


def test_differing_files_are_listed() -> None:
    right = {**CUDA.texts, CUDA.key_path: KEY.decode()}
    assert CUDA.lacks(right) == []
    assert CUDA.lacks({}) == [CUDA.sources_path, CUDA.preferences_path, CUDA.key_path]
    assert CUDA.lacks({**right, CUDA.sources_path: "Types: deb\n"}) == [CUDA.sources_path]
    assert CUDA.lacks({**right, CUDA.key_path: "moved"}) == [CUDA.key_path]


LINES = """\
# deb http://example.org/off bookworm main
deb http://example.org/debian bookworm main contrib # the archive
deb-src http://example.org/debian bookworm main
deb [arch=amd64 signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] https://example.org/cuda/ubuntu2404/x86_64 /
"""
STANZAS = """\
# The archive.
Types: deb deb-src
URIs: http://example.org/ubuntu http://example.org/other
Suites: noble noble-updates
Components: main
  universe
Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg

Enabled: no
Types: deb
URIs: http://example.org/off
Suites: noble

Types: deb-src
URIs: http://example.org/source
Suites: noble
"""


def test_both_source_formats_are_parsed() -> None:
    of_lines = list(repositories.sources("/etc/apt/sources.list", LINES))
    assert of_lines == [
        repositories.AptSource(
            "/etc/apt/sources.list", ("http://example.org/debian",), ("bookworm",), ("main", "contrib")
        ),
        repositories.AptSource(
            "/etc/apt/sources.list",
            ("https://example.org/cuda/ubuntu2404/x86_64",),
            ("/",),
            signed_by="/usr/share/keyrings/cuda-archive-keyring.gpg",
        ),
    ]
    of_stanzas = list(repositories.sources("/etc/apt/sources.list.d/ubuntu.sources", STANZAS))
    assert of_stanzas == [
        repositories.AptSource(
            "/etc/apt/sources.list.d/ubuntu.sources",
            ("http://example.org/ubuntu", "http://example.org/other"),
            ("noble", "noble-updates"),
            ("main", "universe"),
            "/usr/share/keyrings/ubuntu-archive-keyring.gpg",
        )
    ]


def test_existing_apt_entry_for_the_same_url_is_found() -> None:
    there = list(repositories.sources("/etc/apt/sources.list.d/cuda-ubuntu2404-x86_64.list", LINES))
    found = repositories.foreign(CUDA, there)
    assert found
    assert found.path == "/etc/apt/sources.list.d/cuda-ubuntu2404-x86_64.list"
    ours = list(repositories.sources(CUDA.sources_path, CUDA.texts[CUDA.sources_path]))
    assert repositories.foreign(CUDA, ours) is None
    assert repositories.foreign(DEBIAN, ours) is None


@pytest.mark.parametrize(("components", "needed"), [("main", True), ("main contrib non-free", False)])
def test_additional_components_use_the_archive_url(components: str, needed: bool) -> None:
    text = f"Types: deb\nURIs: http://example.org/debian\nSuites: trixie\nComponents: {components}\nSigned-By: /k.gpg\n"
    there = list(repositories.sources("/etc/apt/sources.list.d/debian.sources", text))
    found = repositories.of_archive("debian", ("contrib", "non-free"), there)
    assert found
    assert found.texts[found.sources_path].endswith(
        "URIs: http://example.org/debian\nSuites: trixie\nComponents: contrib non-free\nSigned-By: /k.gpg\n"
    )
    assert (repositories.foreign(found, there) is None) is needed


def test_no_keyring_is_added_for_an_archive_without_one() -> None:
    # apt rejects two entries of one suite with different signatures.
    there = list(repositories.sources("/etc/apt/sources.list", LINES.replace(" contrib", "")))
    found = repositories.of_archive("debian", ("contrib",), there)
    assert found
    assert "Signed-By" not in found.texts[found.sources_path]
    assert found.lacks(found.texts) == []
    assert (
        repositories.of_archive(
            "debian", ("contrib",), list(repositories.sources("/etc/apt/x.list", LINES.replace("/debian", "/x")))
        )
        is None
    )


def test_every_suite_of_the_archive_is_used() -> None:
    lines = (
        "deb http://example.org/ubuntu noble main universe\n"
        "deb http://example.org/ubuntu noble-updates main\n"
        "deb http://security.example.org/ubuntu noble-security main\n"
    )
    there = list(repositories.sources("/etc/apt/sources.list", lines))
    found = repositories.of_archive("ubuntu", ("restricted",), there)
    assert found
    assert (found.uri, found.suites) == ("http://example.org/ubuntu", ("noble", "noble-updates"))
    assert repositories.foreign(found, there) is None
    half = list(repositories.sources("/etc/apt/sources.list", lines.replace("universe", "restricted")))
    assert repositories.foreign(found, half) is None
    whole = list(repositories.sources("/etc/apt/sources.list", lines.replace("main", "main restricted")))
    assert repositories.foreign(found, whole) == whole[0]
