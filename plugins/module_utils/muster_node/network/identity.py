"""The key of the training user for the ssh mesh."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ..tools.result import TaskRefusedError
from .tool import run

if TYPE_CHECKING:
    import pwd


class IdentityFile:
    """The private key's file."""

    def __init__(self, path: str, entry: pwd.struct_passwd, comment: str) -> None:
        self.path = Path(path)
        self.entry = entry
        self.comment = comment

    def public(self) -> str:
        """The public key; nothing where there is no usable one. It is worked out, so that no second file can differ."""
        if not self.path.is_file():
            return ""
        said = run("ssh-keygen", "-y", "-P", "", "-f", str(self.path))
        words = said.stdout.split()
        return " ".join(words[:2]) if said.returncode == 0 and words[:1] == ["ssh-ed25519"] else ""

    def is_kept_well(self) -> bool:
        status = self.path.stat()
        return status.st_uid == self.entry.pw_uid and stat.S_IMODE(status.st_mode) == 0o600

    def keep_well(self) -> None:
        self.path.chmod(0o600)
        os.chown(self.path, self.entry.pw_uid, self.entry.pw_gid)

    def make(self) -> None:
        """The folder is root's, so that nobody can put a link in the way; the key is in place with its first byte."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        with tempfile.TemporaryDirectory(dir=self.path.parent, prefix=".new-") as folder:
            new = Path(folder) / self.path.name
            made = run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.comment, "-f", str(new))
            if made.returncode != 0:
                raise TaskRefusedError(f"ssh-keygen cannot make {self.path}: {made.stderr.strip()}")
            os.chown(new, self.entry.pw_uid, self.entry.pw_gid)
            new.replace(self.path)
