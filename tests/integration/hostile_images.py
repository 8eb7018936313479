"""Container images that attack the node, built from a small copy of a node's system, without PyTorch.

podman reads the health check of an image only from a docker-archive, and annotations only from an oci-archive.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from machines import Machine

# Python with its dependencies, and a few commands.
MAKE = r"""
set -eu
root=$(mktemp -d /var/tmp/muster-test-hostile.XXXXXX)
trap 'rm -rf $root' EXIT
mkdir -p $root/usr/bin $root/usr/lib $root/etc $root/tmp $root/root $root/proc $root/dev $root/sys
for name in bin sbin lib lib64; do ln -s usr/$name $root/$name; done
commands='python3 sh sleep cat id'
for each in $commands; do cp -L $(command -v $each) $root/usr/bin/; done
stdlib=$(python3 -I -S -c 'import os; print(os.path.dirname(os.__file__))')
cd /
tar --create --exclude=test --exclude=__pycache__ --exclude=dist-packages .$stdlib | tar --extract --directory=$root
{ for each in $commands; do ldd $(command -v $each); done; ldd $stdlib/lib-dynload/*.so; } |
    grep -oE '/[^ :]+\.so[^ :]*' | sort -u | grep '^/lib\|^/usr' | while read each; do
    mkdir -p $root/usr$(dirname ${each#/usr})
    cp -L $each $root/usr${each#/usr}
done
tar --create --sort=name --directory=$root .
"""


@dataclass(frozen=True)
class Given:
    """A file in an image. kind: member type as in tarfile. number: major and minor of a device. target: of a link."""

    content: bytes = b""
    mode: int = 0o644
    kind: bytes = tarfile.REGTYPE
    number: tuple[int, int] = (0, 0)
    target: str = ""


@dataclass(frozen=True)
class Hostile:
    """files: files that are added to the system, by path. config: image configuration. names: image names in the
    archive. annotations: if not empty, the archive is an oci-archive instead of a docker-archive.
    """

    files: Mapping[str, Given] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)


def small_system(machine: Machine) -> bytes:
    """Return the base layer of all images, copied from a node."""
    argv = ["podman", "exec", machine.container, "sh", "-c", MAKE]
    return subprocess.run(argv, check=True, capture_output=True).stdout


def write(path: Path, system: bytes, image: Hostile) -> str:
    """Write the archive and return the image id."""
    layers = [system, _tar(image.files)] if image.files else [system]
    config = _json(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["PATH=/usr/bin:/bin"], **image.config},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_digest(layer)}" for layer in layers]},
        }
    )
    made = _oci(config, layers, image) if image.annotations else _docker(config, layers, image)
    path.write_bytes(_tar({name: Given(content) for name, content in made.items()}))
    return _digest(config)


def _docker(config: bytes, layers: list[bytes], image: Hostile) -> dict[str, bytes]:
    names = [f"{_digest(layer)}.tar" for layer in layers]
    listed = [{"Config": f"{_digest(config)}.json", "RepoTags": list(image.names), "Layers": names}]
    contents = dict(zip(names, layers, strict=True))
    return {**contents, f"{_digest(config)}.json": config, "manifest.json": _json(listed)}


def _oci(config: bytes, layers: list[bytes], image: Hostile) -> dict[str, bytes]:
    kind = "application/vnd.oci.image"

    def described(content: bytes, what: str) -> dict[str, Any]:
        return {"mediaType": f"{kind}.{what}", "digest": f"sha256:{_digest(content)}", "size": len(content)}

    manifest = _json(
        {
            "schemaVersion": 2,
            "config": described(config, "config.v1+json"),
            "layers": [described(layer, "layer.v1.tar") for layer in layers],
            "annotations": dict(image.annotations),
        }
    )
    entry = described(manifest, "manifest.v1+json")
    named = {"org.opencontainers.image.ref.name": image.names[0]} if image.names else {}
    index = _json({"schemaVersion": 2, "manifests": [{**entry, "annotations": named}]})
    blobs = {f"blobs/sha256/{_digest(each)}": each for each in (*layers, config, manifest)}
    return {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), **blobs, "index.json": index}


def _tar(files: Mapping[str, Given]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, given in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.type = len(given.content), given.mode, given.kind
            member.devmajor, member.devminor = given.number
            member.linkname = given.target
            tar.addfile(member, io.BytesIO(given.content))
    return made.getvalue()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
