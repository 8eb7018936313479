"""A cluster-wide option is changed in place or added to the text of a file."""

from __future__ import annotations

import pytest

from muster.inventory_file.changes import assign_for_all, assign_to_group, has_for_all, is_of_a_group
from muster.inventory_file.tree import CannotEditError
from muster_controller.inventory.yaml_parts import LANGUAGE

NAME = "cluster_torch_version"


def test_existing_option_is_changed_on_its_line_only() -> None:
    text = 'a: 1  # of ours\ncluster_torch_version: "2.0.0"  # accepted\n\n# the end\n'
    assert has_for_all(text, NAME, LANGUAGE)
    assert assign_for_all(text, NAME, "2.1.0", LANGUAGE) == text.replace("2.0.0", "2.1.0")


def test_option_is_added_below_its_comment() -> None:
    text = '# Release of PyTorch.\n# cluster_torch_version: "2.13.0"\n\n# another: 1\n'
    assert not has_for_all(text, NAME, LANGUAGE)
    wanted = text.replace('"2.13.0"\n', '"2.13.0"\ncluster_torch_version: "2.1.0"\n')
    assert assign_for_all(text, NAME, "2.1.0", LANGUAGE) == wanted
    assert assign_for_all("# nothing", NAME, "2.1.0", LANGUAGE) == '# nothing\ncluster_torch_version: "2.1.0"\n'
    assert assign_for_all("", NAME, "2.1.0", LANGUAGE) == 'cluster_torch_version: "2.1.0"\n'


def test_driver_version_is_written_as_a_quoted_string() -> None:
    assert assign_for_all("a: 1\n", "gpu_stack_driver", "580", LANGUAGE) == 'a: 1\ngpu_stack_driver: "580"\n'


def test_option_in_group_vars_is_changed() -> None:
    text = "gpu_nodes:\n  vars:\n    cluster_torch_version: 2.0.0  # why\n  hosts: {node1: {}}\n"
    assert is_of_a_group(text, NAME, LANGUAGE)
    wanted = text.replace("2.0.0 ", '"2.1.0" ')
    assert assign_to_group(text, NAME, "2.1.0", LANGUAGE) == wanted
    assert not is_of_a_group("gpu_nodes:\n  hosts: {node1: {cluster_torch_version: 2.0.0}}\n", NAME, LANGUAGE)


def test_option_in_several_groups_is_not_changed() -> None:
    text = "a: {vars: {cluster_torch_version: 2.0.0}}\nb: {vars: {cluster_torch_version: 2.0.0}}\n"
    with pytest.raises(CannotEditError, match="several groups"):
        assign_to_group(text, NAME, "2.1.0", LANGUAGE)
