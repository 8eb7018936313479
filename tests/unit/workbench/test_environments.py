"""Environments with a Jupyter kernel."""

from __future__ import annotations

import pytest

from muster.workbench.plan import environments


@pytest.mark.parametrize("root", ["/opt/muster/pytorch/current", "/srv/site/torch"])
def test_default_environment_is_the_one_of_torchrun(root: str) -> None:
    cluster = {
        "cluster_torchrun": f"{root}/bin/torchrun",
        "cluster_environments": {},
        "cluster_environments_root": "/e",
    }
    assert environments(cluster) == {"default": root}
    named = {**cluster, "cluster_environments": {"nlp": {"requirements": "nlp.txt"}}}
    assert environments(named) == {"default": root, "nlp": "/e/nlp/current"}
