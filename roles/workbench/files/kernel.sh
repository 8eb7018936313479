#!/bin/sh
# kernel.sh ENVIRONMENT CONNECTION: a kernel in this environment. Written by Muster (role workbench).
# By the environment's real path, so that it is seen to be in use before anything of it is loaded.
exec "$(readlink -f "$1")/bin/python" "$(dirname "$0")/kernel.py" -f "$2"
