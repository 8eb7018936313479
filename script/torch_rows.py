#!/usr/bin/env python3
"""Update PyTorch's rows in roles/gpu_stack/files/versions.yml from the metadata of the wheels.

.venv/bin/python script/torch_rows.py           write and print changes
.venv/bin/python script/torch_rows.py --show    only print changes

For every release in the package index, the newest Linux wheel is checked for its CUDA, NCCL and cuDNN versions. Only a
few ten kilobytes of each wheel are read. Builds of other indexes (cu126 and so on) are not read and are kept. Files
generated from the table (script/known.py) are written as well.
"""

from __future__ import annotations

import io
import os
import re
import sys
import zipfile
from datetime import datetime, timezone
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin

import known
import yaml
from ansible.module_utils.urls import open_url
from pip._internal.models.index import PyPI  # pip's default index

OLDEST = (2, 4)
WHEEL = re.compile(r"torch-(\d+\.\d+\.\d+)-cp3(\d+)-cp3\d+-manylinux\w*_x86_64\.whl$")
TIMEOUT = 60


class RemoteFile(io.RawIOBase):
    """A remote file that fetches only the requested ranges."""

    def __init__(self, url: str) -> None:
        self._url, self._at = url, 0
        with open_url(url, method="HEAD", timeout=TIMEOUT) as answer:
            self._size = int(answer.headers["Content-Length"])

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        last = min(self._at + len(buffer), self._size) - 1
        if last < self._at:
            return 0
        part = {"Range": f"bytes={self._at}-{last}"}
        with open_url(self._url, headers=part, timeout=TIMEOUT) as answer:
            data = answer.read()
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


class Links(HTMLParser):
    """Collects the links of an index page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href")
        if tag == "a" and href:
            self.found.append(href.partition("#")[0])


def wheels() -> dict[str, dict[int, str]]:
    """Return the URLs of Linux wheels for x86_64, by release and Python minor version."""
    index = os.environ.get("PIP_INDEX_URL", PyPI.simple_url).rstrip("/")
    page = f"{index}/torch/"
    links = Links()
    with open_url(page, timeout=TIMEOUT) as answer:
        links.feed(answer.read().decode())
    found: dict[str, dict[int, str]] = {}
    for href in links.found:
        match = WHEEL.search(href)
        if match and tuple(map(int, match[1].split(".")[:2])) >= OLDEST:
            found.setdefault(match[1], {})[int(match[2])] = urljoin(page, href)
    return found


def metadata(url: str) -> str:
    with zipfile.ZipFile(io.BufferedReader(RemoteFile(url), 16384)) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return wheel.read(name).decode()


def row(release: str, pythons: dict[int, str], kept: dict[str, Any], patches: list[str]) -> dict[str, Any]:
    """Return the row of a release: the default build from its wheel, and the known other builds."""
    text = metadata(pythons[max(pythons)])

    def pinned(pattern: str) -> str:
        found = re.search(rf"^Requires-Dist: {pattern}\s*\(?==([\d.]+)", text, re.MULTILINE)
        return found[1] if found else ""

    cuda = pinned(r"cuda-toolkit\[[^]]*\]") or pinned(r"nvidia-cuda-runtime-cu\d+")
    if not cuda:
        message = f"the wheel of torch {release} does not contain its CUDA version"
        raise SystemExit(message)
    variant = "cu" + "".join(cuda.split(".")[:2])
    builds = {**kept.get("variants", {}), variant: [pinned(r"nvidia-nccl-cu\d+"), pinned(r"nvidia-cudnn-cu\d+")]}
    variants = dict(sorted(builds.items(), key=lambda build: int(build[0][2:])))
    return {
        "default": variant,
        "python": [f"3.{min(pythons)}", f"3.{max(pythons)}"],
        **({"patches": patches} if patches else {}),
        "source": ["wheels", "torch-release"],
        "variants": variants,
    }


def as_text(release: str, about: dict[str, Any]) -> str:
    """Return a row in the format of the table."""
    builds = ", ".join(f'{name}: ["{nccl}", "{cudnn}"]' for name, (nccl, cudnn) in about["variants"].items())
    oldest, newest = about["python"]
    patches = f"patches: [{', '.join(about['patches'])}], " if "patches" in about else ""
    return (
        f'  {release}:\n    {{default: {about["default"]}, python: ["{oldest}", "{newest}"], {patches}'
        f"source: [{', '.join(about['source'])}],\n     variants: {{{builds}}}}}\n"
    )


def main() -> None:
    text = known.TABLE.read_text()
    there = yaml.safe_load(text)["torch"]
    found = wheels()
    # All patches of a release share one row, named after the newest.
    minors: dict[tuple[int, ...], list[str]] = {}
    for release in sorted(found, key=_numbers):
        minors.setdefault(_numbers(release)[:2], []).append(release)
    rows = {
        newest: row(newest, found[newest], _nearest(there, newest), patches) for *patches, newest in minors.values()
    }
    changed = [release for release, about in rows.items() if there.get(release) != about]
    for release in changed:
        sys.stdout.write(as_text(release, rows[release]))
    if not changed:
        sys.stdout.write("Every row is up to date.\n")
    if "--show" in sys.argv[1:]:
        return
    lines = "".join(as_text(release, about) for release, about in rows.items())
    text = re.sub(r"(?<=^torch:\n)(  .*\n)+", lambda _: lines, text, flags=re.MULTILINE)
    today = datetime.now(tz=timezone.utc).date()
    known.TABLE.write_text(re.sub(r"^seen: .*", f"seen: {today}", text, flags=re.MULTILINE))
    known.TARGET.write_text(known.known())


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def _nearest(there: dict[str, Any], release: str) -> dict[str, Any]:
    """Return the row of another patch of the same release, from which other builds are kept."""
    minor = _numbers(release)[:2]
    return next((about for name, about in there.items() if _numbers(name)[:2] == minor), {})


if __name__ == "__main__":
    main()
