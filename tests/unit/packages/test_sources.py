"""Planned changes to apt sources and certificates, and how they are undone."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from muster.packages.certificates import CertificateError, certificates, within
from muster.packages.entries import STOCK_FILES
from muster.packages.mirrors import proxy_environment
from muster.packages.sources import (
    CERTIFICATE_LINKS,
    CERTIFICATES,
    OFFLINE_FILE,
    OFFLINE_SOURCES,
    PROXY_FILE,
    PROXY_KEYS,
    SAVED,
    SourcesRequest,
    SourcesState,
    make_plan,
    offline_texts,
    proxy_text,
)

ROOT = Path(__file__).parents[3]
PEM = (Path(__file__).parent / "certificate.pem").read_text()
OTHER = "-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----\n"
PROXY = "http://proxy.lab:3128"
LIST = "/etc/apt/sources.list"
STOCK = "deb http://stock.example/ubuntu noble main\n"
MIRRORED = "deb http://mirror.lab/ubuntu noble main\n"
NOTHING = SourcesRequest("ubuntu")
PROXIED = SourcesRequest("ubuntu", http_proxy=PROXY, no_proxy=("10.0.0.1",))
MIRROR = SourcesRequest("ubuntu", archive="http://mirror.lab/ubuntu", security="http://mirror.lab/ubuntu")
TRUSTING = SourcesRequest("ubuntu", certificates=(PEM,))
OFFLINE = SourcesRequest("ubuntu", offline="/srv/muster")


def test_node_without_requests_is_unchanged() -> None:
    plan = make_plan(NOTHING, SourcesState({LIST: STOCK}))
    assert not plan.needed
    assert (plan.differences, plan.problems, plan.left_out) == ([], [], [])


def test_proxy_is_written_once() -> None:
    plan = make_plan(PROXIED, SourcesState())
    assert plan.write == {PROXY_FILE: proxy_text(PROXIED)}
    assert plan.lists
    assert plan.differences == [f"{PROXY_FILE} (apt's proxy) is missing"]
    there = SourcesState({PROXY_FILE: proxy_text(PROXIED)}, proxies={PROXY_KEYS[0]: PROXY})
    assert not make_plan(PROXIED, there).needed


def test_proxy_that_is_no_longer_requested_is_removed() -> None:
    plan = make_plan(NOTHING, SourcesState({PROXY_FILE: proxy_text(PROXIED)}))
    assert (plan.write, plan.remove) == ({}, [PROXY_FILE])


def test_overriding_proxy_setting_is_reported() -> None:
    there = SourcesState({PROXY_FILE: proxy_text(PROXIED)}, proxies={PROXY_KEYS[0]: "http://other.lab:8080"})
    assert "Acquire::http::Proxy of apt is http://other.lab:8080 instead of" in make_plan(PROXIED, there).problems[0]


def test_apt_bypasses_the_proxy_only_for_individual_hosts() -> None:
    text = proxy_text(SourcesRequest("ubuntu", https_proxy=PROXY, no_proxy=("10.0.0.1", ".lab", "10.0.0.0/8")))
    assert text.splitlines()[1:] == [
        f'Acquire::https::Proxy "{PROXY}";',
        'Acquire::http::Proxy::10.0.0.1 "DIRECT";',
        'Acquire::https::Proxy::10.0.0.1 "DIRECT";',
    ]


def test_proxy_variables_are_set() -> None:
    assert proxy_environment("", "", ["node1"]) == {}
    led = proxy_environment("", PROXY, ["node1", "10.0.0.1"])
    assert led == {"http_proxy": "", "https_proxy": PROXY, "no_proxy": "node1,10.0.0.1"}


def test_source_file_is_copied_before_it_is_changed() -> None:
    plan = make_plan(MIRROR, SourcesState({LIST: STOCK}))
    assert list(plan.write.items()) == [(LIST + SAVED, STOCK), (LIST, MIRRORED)]


def test_run_interrupted_after_the_copy_is_completed() -> None:
    assert make_plan(MIRROR, SourcesState({LIST: STOCK, LIST + SAVED: STOCK})).write == {LIST: MIRRORED}


def test_node_that_already_uses_the_mirror_is_unchanged() -> None:
    assert not make_plan(MIRROR, SourcesState({LIST: MIRRORED, LIST + SAVED: STOCK})).needed


def test_switching_to_upstream_restores_the_source_file() -> None:
    plan = make_plan(NOTHING, SourcesState({LIST: MIRRORED, LIST + SAVED: STOCK}))
    assert (plan.write, plan.remove) == ({LIST: STOCK}, [LIST + SAVED])


def test_run_interrupted_before_the_removal_of_the_copy_is_completed() -> None:
    plan = make_plan(NOTHING, SourcesState({LIST: STOCK, LIST + SAVED: STOCK}))
    assert (plan.write, plan.remove) == ({}, [LIST + SAVED])


def test_copy_of_a_deleted_file_is_removed() -> None:
    assert make_plan(MIRROR, SourcesState({LIST + SAVED: STOCK, STOCK_FILES[1]: ""})).remove == [LIST + SAVED]


def test_node_without_an_archive_entry_is_reported() -> None:
    plan = make_plan(MIRROR, SourcesState({LIST: "deb http://packages.ros.example/ros2/ubuntu noble main\n"}))
    assert not plan.write
    assert plan.problems[0].startswith("no entry for the archive of ubuntu was found in /etc/apt/sources.list, ")


def test_certificate_is_added_once() -> None:
    path = f"{CERTIFICATES}/muster.crt"
    plan = make_plan(TRUSTING, SourcesState(bundle=OTHER))
    assert (plan.write, plan.bundle) == ({path: PEM}, True)
    assert not make_plan(TRUSTING, SourcesState({path: PEM}, links=("muster.pem",), bundle=OTHER + PEM)).needed


def test_certificate_missing_from_the_bundle_is_added() -> None:
    plan = make_plan(TRUSTING, SourcesState({f"{CERTIFICATES}/muster.crt": PEM}, bundle=OTHER))
    assert (plan.write, plan.bundle) == ({}, True)
    assert plan.differences == [f"the system's certificates do not include {CERTIFICATES}/muster.crt"]


def test_certificate_is_removed_even_after_a_killed_run() -> None:
    path, link = f"{CERTIFICATES}/muster.crt", f"{CERTIFICATE_LINKS}/muster.pem"
    plan = make_plan(NOTHING, SourcesState({path: PEM}, links=("muster.pem",), bundle=OTHER + PEM))
    assert (plan.remove, plan.links, plan.bundle) == ([path], [link], True)
    killed = make_plan(NOTHING, SourcesState(links=("muster.pem",), bundle=OTHER + PEM))
    assert (killed.remove, killed.links, killed.bundle) == ([], [link], True)
    assert len(killed.differences) == 1


def test_one_of_two_certificates_can_be_removed() -> None:
    second = f"{CERTIFICATES}/muster-2.crt"
    both = make_plan(SourcesRequest("ubuntu", certificates=(PEM, OTHER)), SourcesState())
    assert list(both.write) == [f"{CERTIFICATES}/muster.crt", second]
    seen = SourcesState({**both.write}, links=("muster-2.pem", "muster.pem"), bundle=PEM + OTHER)
    plan = make_plan(TRUSTING, seen)
    assert (plan.remove, plan.links) == ([second], [f"{CERTIFICATE_LINKS}/muster-2.pem"])


def test_missing_certificate_package_is_reported() -> None:
    plan = make_plan(TRUSTING, SourcesState(bundle=None))
    assert not plan.bundle
    assert plan.left_out[0]["why"].startswith("ca-certificates is not installed yet")


def test_offline_apt_uses_only_the_given_folder() -> None:
    plan = make_plan(OFFLINE, SourcesState({LIST: STOCK}))
    assert list(plan.write) == [OFFLINE_SOURCES, OFFLINE_FILE]
    assert "URIs: file:/srv/muster/debs/\n" in plan.write[OFFLINE_SOURCES]
    assert not make_plan(OFFLINE, SourcesState({LIST: STOCK, **offline_texts("/srv/muster")})).needed
    assert make_plan(NOTHING, SourcesState(offline_texts("/srv/muster"))).remove == [OFFLINE_FILE, OFFLINE_SOURCES]


def test_unusable_offline_folder_is_reported() -> None:
    plan = make_plan(OFFLINE, SourcesState(offline="folder /srv/muster/debs does not exist"))
    assert (plan.write, plan.problems) == ({}, ["folder /srv/muster/debs does not exist"])


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "contains no PEM certificate"),
        ("<html></html>", "contains no PEM certificate"),
        (PEM + "-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----\n", "contains a private key"),
        (PEM + OTHER, "is corrupt: certificate 2 of 2 cannot be read"),
    ],
)
def test_invalid_certificates_are_rejected(text: str, error: str) -> None:
    with pytest.raises(CertificateError, match=error):
        certificates(text)


def test_certificates_installed_by_muster_are_recognized() -> None:
    assert certificates(f"# of the lab\n{PEM}\n{PEM}") == [PEM]
    assert within(PEM, "x" + PEM.replace("\n", "\r\n"))


def test_baseline_check_covers_every_written_file() -> None:
    traces = yaml.safe_load((ROOT / "roles/node_baseline/vars/main.yml").read_text())["_node_baseline_traces"]
    files = [PROXY_FILE, OFFLINE_FILE, OFFLINE_SOURCES, *(path + SAVED for path in STOCK_FILES)]
    assert traces == [*files, f"{CERTIFICATES}/muster.crt", f"{CERTIFICATE_LINKS}/muster.pem"]


def test_role_and_controller_use_the_same_conditions_for_requests() -> None:
    before = yaml.safe_load((ROOT / "playbooks/baseline.yml").read_text())[1]["pre_tasks"]
    requested = next(task for task in before if "include_role" in str(task))["when"]
    tasks = yaml.safe_load((ROOT / "roles/node_baseline/tasks/main.yml").read_text())[1]["block"]
    taken_back = next(task for task in tasks if "include_role" in str(task))["when"][1]
    assert requested.replace("!=", "==") == taken_back
