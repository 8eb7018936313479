"""What keeps somebody out, in words for people."""

from __future__ import annotations

import pytest

from muster.verdict.access import explain

SSH = "root@10.0.0.11: Permission denied (publickey,password)."
ANSIBLE = (
    'Task failed: Data could not be sent to remote host "10.0.0.11". Make sure this host can be reached over ssh: '
)


@pytest.mark.parametrize("why", [SSH, ANSIBLE + SSH, f"Failed to connect to the host via ssh: {SSH}\n"])
def test_a_log_in_that_is_refused_says_who_and_what_to_type(why: str) -> None:
    what, fix = explain(why)
    assert what == "ssh does not let root in there"
    assert fix.endswith(": ansible-playbook playbooks/trust.yml -e trust_copy_key=true --ask-pass")


@pytest.mark.parametrize("why", [f"node1 cannot log in on node2: {SSH}", "Connection timed out", ""])
def test_what_is_no_log_in_of_the_controller_stays_as_it_is(why: str) -> None:
    assert explain(why) == ("", "")
