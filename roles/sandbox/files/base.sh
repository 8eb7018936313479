#!/bin/sh
# Makes the image that the machines' image starts from: base.sh BUILD_DIR IMAGE BASE [RELEASE]
set -eu
dir=$1 image=$2 base=$3 release=${4:-}

pull() {
    if podman image exists "$1"; then
        podman tag "$1" "$image"
        return
    fi
    # A registry that cannot be reached may take minutes to say so.
    timeout "$2" podman pull --quiet "$1" || return 1
    podman tag "$1" "$image"
    # What was not here before does not stay.
    podman untag "$1" "$1"
}

bootstrap() {
    command -v mmdebstrap >/dev/null || { echo "mmdebstrap is missing: run script/setup sandbox, or install it." >&2; exit 1; }
    [ -s "$dir/sources" ] || { echo "apt on this machine has no source of Debian or Ubuntu: run apt-get update." >&2; exit 1; }
    [ -n "$release" ] || release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    mkdir "$dir/tmp"
    # With mounts of its own: those of a bootstrap that is killed would stay, and removing its folder would reach into them.
    TMPDIR=$dir/tmp unshare --mount mmdebstrap --mode=root --variant=minbase --include=apt,ca-certificates \
        --aptopt="$dir/context/apt.conf" --dpkgopt=force-unsafe-io "$release" "$dir/base.tar" "$dir/sources"
    podman import --quiet "$dir/base.tar" "$image"
}

case $base in
    *:*) pull "$base" 600 ;;
    auto) pull ubuntu:24.04 50 || bootstrap ;;
    debian12 | debian13 | host) bootstrap ;;
    *) echo "sandbox_base is '$base': it may be auto, debian12, debian13, host, or an image such as ubuntu:24.04." >&2; exit 1 ;;
esac
