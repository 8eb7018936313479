"""python -m muster_cli."""

from .command import main

main()
