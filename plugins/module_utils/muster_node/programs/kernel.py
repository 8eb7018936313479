"""Who brings the kernels of this node, for an upgrade. Nothing is changed. Every verb prints one JSON object.

look      root  says which packages bring kernels, which of these apt has, and what the boot menu calls them
simulate  root  says what apt would do for some packages
"""

from __future__ import annotations

from ..tools.program import answer
from ..upgrade.kernel import look, simulate


def main() -> None:
    answer({"look": look, "simulate": simulate})


if __name__ == "__main__":
    main()
