#!/bin/sh
# Builds the base image of the machine image: base.sh BUILD_DIR IMAGE BASE [UBUNTU_MIRROR]
set -eu
dir=$1 image=$2 base=$3 mirror=${4:-}
plugins=$(cd "$(dirname "$0")/../../../plugins" && pwd)

pull() {
    if podman image exists "$1"; then
        podman tag "$1" "$image"
        return
    fi
    # An unreachable registry may take minutes to fail.
    timeout "$2" podman pull --quiet "$1" || return 1
    podman tag "$1" "$image"
    # Removes the image if it was not present before.
    podman untag "$1" "$1"
}

bootstrap() {
    PYTHONPATH="$plugins/module_utils:$plugins/plugin_utils" python3 -m muster_controller.sandbox.bases "$dir" "$1" "$mirror"
    podman import --quiet "$dir/base.tar" "$image"
}

case $base in
    *:*) pull "$base" 600 ;;
    auto) pull ubuntu:24.04 50 || bootstrap host ;;
    debian12 | debian13 | ubuntu22.04 | ubuntu24.04 | ubuntu26.04 | host) bootstrap "$base" ;;
    *)
        echo "sandbox_base is '$base': it may be auto, debian12, debian13, ubuntu22.04, ubuntu24.04, ubuntu26.04, host, or an image such as ubuntu:24.04." >&2
        exit 1
        ;;
esac
