#!/bin/sh
# kernel.sh ENVIRONMENT CONNECTION: starts a kernel in this environment. Written by Muster (role workbench).
# Uses the real path of the environment, so that Muster detects its use before a file of the environment is loaded.
exec "$(readlink -f "$1")/bin/python" "$(dirname "$0")/kernel.py" -f "$2"
