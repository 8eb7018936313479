"""Manages container images for launches on one node.

Run by NodeProgram (plugin_utils) as root, with a verb as argument and a JSON payload on standard input.

    engine    check podman, the image, and the folders to mount
    load      load a distributed archive into podman
    pull      let podman pull an image from its registry by digest
    versions  return the versions of Python and PyTorch in an image
"""

from __future__ import annotations

from ..launch import images
from ..tools.program import answer


def main() -> None:
    answer({"engine": images.look, "load": images.load, "pull": images.pull, "versions": images.versions})


if __name__ == "__main__":
    main()
