"""Explanations of access errors."""

from __future__ import annotations

import pytest

from muster.verdict.access import explain

SSH = "root@10.0.0.11: Permission denied (publickey,password)."
ANSIBLE = (
    'Task failed: Data could not be sent to remote host "10.0.0.11". Make sure this host can be reached over ssh: '
)


@pytest.mark.parametrize("why", [SSH, ANSIBLE + SSH, f"Failed to connect to the host via ssh: {SSH}\n"])
def test_message_on_a_rejected_login_names_the_user_and_a_command(why: str) -> None:
    what, fix = explain(why)
    assert what == "ssh rejected the login of root"
    assert fix.endswith(": ansible-playbook playbooks/trust.yml -e trust_copy_key=true --ask-pass")


@pytest.mark.parametrize("why", [f"node1 cannot log in on node2: {SSH}", "Connection timed out", ""])
def test_other_errors_are_not_explained(why: str) -> None:
    assert explain(why) == ("", "")
