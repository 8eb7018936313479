"""Run the real apt with the stub repositories, without changing this machine."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from package_list import LABELS, preferences, read_packages, write_index

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# From the keyring package of NVIDIA's repository (cuda-repository-pin-600).
OF_THE_KEYRING = "Package: *\nPin: release l=NVIDIA CUDA\nPin-Priority: 600\n"


@dataclass(frozen=True)
class Answer:
    """The packages with versions that apt would install, or apt's error."""

    installs: dict[str, str]
    error: str


class Apt:
    """apt with a separate root folder in which no packages are installed."""

    def __init__(self, folder: Path, repositories: Sequence[str] = tuple(LABELS)) -> None:
        self.folder = folder
        for part in ("etc/preferences.d", "state/lists/partial", "cache/archives/partial"):
            (folder / part).mkdir(parents=True)
        (folder / "status").touch()
        packages = read_packages()
        lines = []
        for name in repositories:
            (folder / name).mkdir()
            write_index(folder / name, LABELS[name], [package for package in packages if package["repo"] == name])
            lines.append(f"deb [trusted=yes] file:{folder / name} ./")
        (folder / "etc/sources.list").write_text("\n".join(lines) + "\n")
        self.prefer("keyring", OF_THE_KEYRING)
        done = self._run("apt-get", "update")
        assert done.returncode == 0, done.stderr

    def prefer(self, name: str, text: str) -> None:
        (self.folder / f"etc/preferences.d/{name}").write_text(text)

    def pin(self, package: str) -> None:
        """Set the pin that the package nvidia-driver-pinning-VERSION sets."""
        self.prefer("nvidia-driver-pinning", preferences(package))

    def install(self, *packages: str) -> Answer:
        """Return what apt would install."""
        done = self._run("apt-get", "--simulate", "--no-install-recommends", "install", *packages)
        if done.returncode:
            return Answer({}, " ".join((done.stdout + done.stderr).split()))
        return Answer(dict(re.findall(r"^Inst (\S+) \((\S+)", done.stdout, re.MULTILINE)), "")

    def candidate(self, package: str) -> str:
        """Return apt's candidate version."""
        shown = self._run("apt-cache", "policy", package).stdout
        found = re.search(r"Candidate: (\S+)", shown)
        return found[1] if found else ""

    def _run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        settings = {
            "Dir::State": "state",
            "Dir::State::status": "status",
            "Dir::Cache": "cache",
            "Dir::Etc::sourcelist": "etc/sources.list",
            "Dir::Etc::sourceparts": "etc/none",
            "Dir::Etc::preferences": "etc/none",
            "Dir::Etc::preferencesparts": "etc/preferences.d",
            "Dir::Etc::main": "etc/none",
            "Dir::Etc::parts": "etc/none",
        }
        options = [f"--option={name}={self.folder / path}" for name, path in settings.items()]
        options += ["--option=APT::Architecture=amd64", "--option=APT::Sandbox::User=root"]
        return subprocess.run(
            [argv[0], *options, *argv[1:]],
            check=False,
            capture_output=True,
            text=True,
            env={"LC_ALL": "C", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
        )
