"""Environments without PyTorch, such as the one of JupyterLab, use the same code for requests, locks and build
selection."""

from __future__ import annotations

import pytest

from muster.pytorch import judge, lock, pip, request
from muster.pytorch.choice import Ask, choose, still_asked, updated
from muster.pytorch.lock import Wheel
from muster.pytorch.request import PLAIN, EnvironmentRequestError, is_environment, make_plain_request, make_request

ASK = Ask("4.6.6", PLAIN, 0, ("tensorboard==2.21.0", "x==1; python_version < '3.11'"), package="jupyterlab")
WHEELS = [Wheel("jupyterlab", "4.6.6", "0" * 64, "jupyterlab-4.6.6-py3-none-any.whl")]


def test_environment_name_depends_on_the_pins() -> None:
    wanted = ASK.request("3.12")
    assert [*map(str, wanted.requirements)] == ["jupyterlab==4.6.6", "tensorboard==2.21.0"]
    assert wanted.name.startswith("4.6.6-plain-py3.12-")
    assert is_environment(wanted.name)


def test_plain_lock_section_is_chosen_again_after_parsing() -> None:
    section = lock.make_section(ASK.request("3.12"), "x86_64", WHEELS)
    text = lock.render([section])
    assert text.startswith("# The workbench environments of this cluster")
    assert lock.parse(text) == (section,)
    assert choose([section], ASK, "3.12", "x86_64").section == section
    assert updated([section], section, [ASK]) == (section,)


def test_updating_a_pytorch_lock_drops_plain_sections() -> None:
    section = lock.make_section(ASK.request("3.12"), "x86_64", WHEELS)
    assert not still_asked(section, [Ask("2.13.0", "auto", 0, ()), Ask("2.13.0", "auto", 8, ())])
    assert still_asked(section, [ASK])


def test_plain_is_rejected_as_a_pytorch_variant() -> None:
    with pytest.raises(EnvironmentRequestError, match="plain"):
        make_request(torch_version="2.13.0", variant=PLAIN, gpus=0, packages=[], python="3.12")


def test_invalid_pin_is_reported_with_its_option() -> None:
    with pytest.raises(EnvironmentRequestError, match="workbench_packages: 'tensorboard' is not an exact pin"):
        make_plain_request("jupyterlab", version="4.6.6", packages=["tensorboard"], python="3.12")


def test_plain_environment_does_not_use_the_pytorch_index() -> None:
    sources = pip.pip_sources(PLAIN, index_url="auto", extra_index_urls=[], find_links=[], offline_dir="")
    assert sources == [[]]


@pytest.mark.parametrize(
    ("look", "status", "summary"),
    [
        (
            {"packages": {"jupyterlab": "4.6.6", "tensorboard": "2.21.0"}},
            "pass",
            "jupyterlab 4.6.6, tensorboard 2.21.0",
        ),
        (
            {"packages": {"jupyterlab": "4.6.6"}},
            "fail",
            "tensorboard==2.21.0 is requested; installed: tensorboard none",
        ),
        ({"error": "ImportError: no", "packages": {}}, "fail", "jupyterlab==4.6.6 cannot be used: ImportError: no"),
    ],
)
def test_missing_tools_produce_a_finding(look: dict[str, object], status: str, summary: str) -> None:
    wanted: request.EnvironmentRequest = ASK.request("3.12")
    (finding,) = judge.judge("node1", wanted, look)
    assert (finding.id, finding.status, finding.summary) == ("workbench.environment", status, summary)
