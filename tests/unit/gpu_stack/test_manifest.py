"""The manifest of a node's installed GPU stack, built from node facts and the output of apt."""

from __future__ import annotations

from typing import Any

import pytest

from muster.gpu_stack.manifest import UNKNOWN, manifest, origins, same

# Format of apt 2.7 on Ubuntu 24.04; names and addresses are made up.
POLICY = """\
nvidia-open-580:
  Installed: 580.178.04-1ubuntu1
  Candidate: 580.178.04-1ubuntu1
  Version table:
 *** 580.178.04-1ubuntu1 1000
        600 https://user:secret@mirror.example.org/cuda/ubuntu2404/x86_64  Packages
        100 /var/lib/dpkg/status
     580.159.04-1ubuntu1 1000
        600 https://mirror.example.org/cuda/ubuntu2404/x86_64  Packages
linux-headers-generic:
  Installed: 6.8.0-90.91
  Candidate: 6.8.0-94.95
  Version table:
     6.8.0-94.95 500
        500 http://archive.example.org/ubuntu noble-updates/main amd64 Packages
 *** 6.8.0-90.91 100
        500 http://archive.example.org/ubuntu noble/main amd64 Packages
        100 /var/lib/dpkg/status
libcuda1:
  Installed: 535.1-1
  Candidate: 535.1-1
  Version table:
 *** 535.1-1 100
        100 /var/lib/dpkg/status
dkms:
  Installed: (none)
  Candidate: 3.0.11
  Version table:
     3.0.11 -1
         -1 http://archive.example.org/ubuntu noble/main amd64 Packages
"""
FACTS: dict[str, Any] = {
    "system": {"id": "ubuntu", "version": "24.04"},
    "gpus": {"devices": [{"id": "10de:2330"}, {"id": "10de:2330"}, {"id": "10de:20b0"}]},
    "stack": {
        "running": "6.8.0-90-generic",
        "loaded": "580.178.04",
        "kernels": {
            "6.8.0-90-generic": {"module": "580.178.04"},
            "6.8.0-79-generic": {"module": ""},
        },
        "packages": {
            "nvidia-open-580": {"version": "580.178.04-1ubuntu1", "state": "installed"},
            "libcuda1": {"version": "535.1-1", "state": "installed"},
            "nvidia-dkms-580-open": {"version": "580.178.04-1ubuntu1", "state": "half-configured"},
        },
    },
}


def test_package_source_is_the_one_of_the_installed_version() -> None:
    assert origins(POLICY) == {
        "nvidia-open-580": "https://mirror.example.org/cuda/ubuntu2404/x86_64",
        "linux-headers-generic": "http://archive.example.org/ubuntu noble/main",
    }
    assert origins("") == {}


def test_manifest_lists_installed_packages_with_their_sources() -> None:
    assert manifest("node1", FACTS, origins(POLICY)) == {
        "schema": 1,
        "node": "node1",
        "system": "ubuntu-24.04",
        "kernel": "6.8.0-90-generic",
        "gpus": {"10de:20b0": 1, "10de:2330": 2},
        "driver": {"loaded": "580.178.04", "on_disk": {"6.8.0-90-generic": "580.178.04"}},
        "packages": {
            "libcuda1": {"version": "535.1-1", "from": UNKNOWN},
            "nvidia-open-580": {
                "version": "580.178.04-1ubuntu1",
                "from": "https://mirror.example.org/cuda/ubuntu2404/x86_64",
            },
        },
    }


@pytest.mark.parametrize("there", [{}, {"packages": {}}, {"schema": 0}])
def test_missing_or_different_manifest_counts_as_a_change(there: dict[str, Any]) -> None:
    assert not same(there, manifest("node1", FACTS, {}))


def test_sources_of_packages_do_not_count_as_a_change() -> None:
    assert same(manifest("node1", FACTS, origins(POLICY)), manifest("node1", FACTS, {}))
    newer = {**FACTS, "stack": {**FACTS["stack"], "loaded": "595.91.07"}}
    assert not same(manifest("node1", FACTS, {}), manifest("node1", newer, {}))
