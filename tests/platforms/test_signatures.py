"""Test with the real archive that the base images install only packages signed by Ubuntu."""

from __future__ import annotations

from pathlib import Path

import pytest

from bare import MIRROR
from muster.sandbox.bases import UBUNTU_ARCHIVE
from muster_controller.sandbox import bases

# Keys that do not sign Ubuntu's archive.
OTHER_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


@pytest.mark.skipif(not OTHER_KEYS.exists(), reason="this machine has no keys of another distribution")
def test_archive_signed_with_another_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "context").mkdir()
    (tmp_path / "context/apt.conf").write_text("")
    monkeypatch.setattr(bases, "ubuntu_keyring", lambda *_: OTHER_KEYS)
    with pytest.raises(
        bases.UnavailableError, match=r"ubuntu24.04 could not be downloaded from .*: .*NO_PUBKEY 871920D1991BC93C"
    ):
        bases.bootstrap(tmp_path, "ubuntu24.04", MIRROR or UBUNTU_ARCHIVE)
    assert not (tmp_path / "base.tar").exists()
