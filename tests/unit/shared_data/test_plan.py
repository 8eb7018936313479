"""Planned changes for shared folders on a node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from muster.shared_data.plan import EMPTY, FULL, MISSING, OTHER, MountsState, On, make_plan
from muster.shared_data.request import Mount
from muster.shared_data.units import files_of

DATA = Mount("files:/export", "/data", "nfs", "hard")
PACKAGES = {"nfs": "nfs-common"}
AUTOFS = On("systemd-1", "autofs")
BARE = MountsState(folders={"/data": MISSING})
DONE = MountsState(
    ours=files_of(DATA),
    mounted={"/data": [AUTOFS, On("files:/export", "nfs4")]},
    active=["data.automount"],
    enabled=["data.automount"],
    helpers=["nfs"],
)


def test_complete_setup_is_planned_for_a_bare_node() -> None:
    plan = make_plan([DATA], BARE, PACKAGES)
    assert plan.problems == []
    assert plan.packages == ["nfs-common"]
    assert plan.make == ["/data"]
    assert plan.files == files_of(DATA)
    assert plan.start == ["data.automount"]
    assert plan.stop == plan.remove == []
    assert plan.differences[0] == "package nfs-common is missing (required for /data)"


@pytest.mark.parametrize("mounted", [[AUTOFS], DONE.mounted["/data"]], ids=["not used yet", "in use"])
def test_node_with_a_complete_setup_is_unchanged(mounted: Any) -> None:
    plan = make_plan([DATA], replace(DONE, mounted={"/data": mounted}), PACKAGES)
    assert not plan.needed
    assert plan.problems == []


def test_changed_source_is_mounted_again() -> None:
    other = replace(DATA, source="files2:/export")
    plan = make_plan([other], DONE, PACKAGES)
    assert plan.stop == ["/data"]
    assert plan.start == ["data.automount"]
    assert list(plan.files) == ["/etc/systemd/system/data.mount"]
    assert plan.differences == ["/etc/systemd/system/data.mount has other content"]


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ({"enabled": []}, "data.automount is not enabled"),
        ({"active": []}, "data.automount is not active"),
    ],
)
def test_disabled_unit_is_started(seen: dict[str, Any], said: str) -> None:
    plan = make_plan([DATA], replace(DONE, **seen), PACKAGES)
    assert plan.differences == [said]
    assert plan.start == ["data.automount"]


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ({"folders": {"/data": FULL}}, "/data contains files, which a mount would hide"),
        ({"folders": {"/data": OTHER}}, "/data is not a folder"),
        ({"mounted": {"/data": [On("/dev/sdb1", "ext4")]}}, "/dev/sdb1 is already mounted on /data, but not by Muster"),
        ({"fstab": {"/data": "old:/export"}}, "/etc/fstab mounts old:/export on /data instead of files:/export"),
    ],
)
def test_obstacles_to_shared_folders_are_reported(seen: dict[str, Any], said: str) -> None:
    plan = make_plan([DATA], MountsState(**seen), PACKAGES)
    (problem,) = plan.problems
    assert problem.startswith(said)
    assert plan.files == {}
    assert plan.start == []


def test_mounts_in_fstab_are_unchanged() -> None:
    seen = MountsState(fstab={"/data": "files:/export"}, mounted={"/data": [On("files:/export", "nfs4")]})
    plan = make_plan([DATA], seen, PACKAGES)
    assert (plan.problems, plan.needed) == ([], False)


def test_unsupported_type_is_reported() -> None:
    plan = make_plan([replace(DATA, type="weka")], BARE, PACKAGES)
    assert plan.problems == ["weka has no mount helper (mount.weka): install one, or correct the type"]


def test_unrequested_units_are_removed() -> None:
    plan = make_plan([], DONE, PACKAGES)
    assert plan.stop == ["/data"]
    assert plan.remove == sorted(files_of(DATA))
    assert plan.needed


def test_scratch_folder_is_created_and_opened_to_all_users() -> None:
    def of(**seen: Any) -> Any:
        return make_plan([], MountsState(**seen), {}, "/scratch", 500 * 10**9)

    missing = of(folders={"/scratch": MISSING}, scratch_bytes=2 * 10**12)
    assert (missing.scratch, missing.differences) == (True, ["/scratch is missing"])
    closed = of(folders={"/scratch": FULL}, scratch_bytes=2 * 10**12)
    assert closed.differences == ["/scratch is not writable for all users (mode 1777)"]
    done = of(folders={"/scratch": EMPTY}, scratch_open=True, scratch_bytes=2 * 10**12)
    assert (done.needed, done.problems) == (False, [])
    small = of(folders={"/scratch": EMPTY}, scratch_open=True, scratch_bytes=64 * 10**9)
    assert small.problems[0].startswith("/scratch is on a file system of 64 GB, but 500 GB are requested")
