"""Validation of the requested shared folders: all errors with fixes at once."""

from __future__ import annotations

from typing import Any

import pytest

from muster.shared_data.request import Mount, faults, mounts_of

GOOD: list[Any] = [
    {"source": "files:/export/data", "path": "/data"},
    {"source": "files.lab:/homes", "path": "/home/shared", "type": "nfs4", "options": "hard,vers=4.2"},
    {"source": "//files/data", "path": "/srv/win", "type": "cifs", "options": "credentials=/etc/files.key"},
]


def test_valid_requests_are_accepted() -> None:
    assert faults(GOOD, "/scratch") == []
    assert faults([]) == faults(()) == []


def test_default_type_and_options_are_filled_in() -> None:
    first, second, third = mounts_of(GOOD)
    assert first == Mount("files:/export/data", "/data", "nfs", "hard,timeo=150,retrans=2")
    assert second.options == "hard,vers=4.2"
    assert third == Mount("//files/data", "/srv/win", "cifs", "credentials=/etc/files.key")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"source": "files:/a"}, "is not a mapping of source, path, type, options"),
        ({"source": "files:/a", "path": "/data", "kind": "nfs"}, "is not a mapping of"),
        ("files:/a /data", "is not a mapping of"),
        ({"source": "files:/a b", "path": "/data"}, "is empty or has spaces"),
        ({"source": "", "path": "/data"}, "is empty or has spaces"),
        ({"source": "files:/a", "path": "data"}, "the path 'data' is not a normalized absolute path"),
        ({"source": "files:/a", "path": "/data/"}, "is not a normalized absolute path"),
        ({"source": "files:/a", "path": "/data/../etc"}, "is not a normalized absolute path"),
        ({"source": "files:/a", "path": "/my data"}, "is not a normalized absolute path"),
        ({"source": "files:/a", "path": "/"}, "/ is a system folder"),
        ({"source": "files:/a", "path": "/var/lib/muster"}, "/var/lib/muster is a system folder"),
        ({"source": "files:/a", "path": "/data", "type": "NFS 4"}, "has the invalid type 'NFS 4'"),
        ({"source": "files:/a", "path": "/data", "options": "hard, vers=3"}, "mount options of /data contain spaces"),
        ({"source": "files:/a", "path": "/data", "options": "soft,vers=3"}, "has the option soft"),
        (
            {"source": "files:/a", "path": "/data", "options": "hard,_netdev,nofail"},
            "the options of /data contain _netdev, nofail, which",
        ),
        ({"source": "files:/a", "path": "/data", "options": "x-systemd.automount"}, "only fstab supports"),
    ],
)
def test_invalid_entries_are_reported(entry: Any, said: str) -> None:
    found = faults([entry])
    assert len(found) == 1, found
    assert said in found[0][0]
    assert found[0][1]


def test_nested_folders_are_rejected() -> None:
    twice = [{"source": "a:/x", "path": "/data"}, {"source": "b:/x", "path": "/data"}]
    assert [what for what, _ in faults(twice)] == ["/data is listed twice"]
    within = [{"source": "a:/x", "path": "/data"}, {"source": "b:/x", "path": "/data/sets"}]
    assert [what for what, _ in faults(within)] == ["/data/sets is inside /data"]
    assert [what for what, _ in faults([{"source": "a:/x", "path": "/data"}], "/data/scratch")] == [
        "/data/scratch is inside /data"
    ]
    assert [what for what, _ in faults("files:/a")] == ["the value is not a list"]


def test_all_errors_are_reported_at_once() -> None:
    entries = [{"source": "a b", "path": "data", "options": "soft"}, 7]
    assert len(faults(entries)) == 4
