"""Container images for launches, on one node.

Run by Program (plugin_utils), with a verb as argument and a JSON payload on standard input; as root.

    engine    says what podman is there, whether the image is, and what stands against the folders that it shall see
    load      has podman take an archive that was distributed
    pull      has podman fetch an image from its registry, by its digest
    versions  says what Python and PyTorch an image has
"""

from __future__ import annotations

from ..launch import images
from ..tools.program import answer


def main() -> None:
    answer({"engine": images.look, "load": images.load, "pull": images.pull, "versions": images.versions})


if __name__ == "__main__":
    main()
