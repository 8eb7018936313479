"""Who downloads which deb, and what is read of apt's own words."""

from __future__ import annotations

from muster.packages.debs import Deb, parse_uris, share

A, B, C = (Deb(f"{name}_1_amd64.deb", 10, name * 64) for name in "abc")
PRINTED = f"""\
'http://mirror.lab/ubuntu/pool/a_1_amd64.deb' a_1_amd64.deb 10 SHA256:{"a" * 64}
'http://mirror.lab/ubuntu/pool/c_1%2b2_amd64.deb' c_1%3a1+2_amd64.deb 10 SHA256:{"c" * 64}
'http://mirror.lab/ubuntu/pool/m_1_amd64.deb' m_1_amd64.deb 10 MD5Sum:{"0" * 32}
'http://mirror.lab/ubuntu/pool/n_1_amd64.deb' n_1_amd64.deb 10 \n\
'file:/srv/debs/./f_1_amd64.deb' f_1_amd64.deb 10 SHA256:{"f" * 64}
N: Download is performed unsandboxed as root
"""


def test_what_has_no_checksum_or_lies_on_the_node_is_left_to_apt() -> None:
    assert parse_uris(PRINTED) == [
        Deb("a_1_amd64.deb", 10, "a" * 64),
        Deb("c_1%3a1+2_amd64.deb", 10, "c" * 64),
    ]


def test_apt_that_fetches_nothing_prints_nothing() -> None:
    assert parse_uris("") == []


def test_the_first_node_downloads_everything_and_the_next_ones_nothing() -> None:
    claims: dict[str, str] = {}
    assert share("node2", [A, B], claims).own == (A, B)
    for node in ("node1", "node3"):
        mine = share(node, [A, B], claims)
        assert mine.own == ()
        assert mine.others == {"node2": (A, B)}


def test_a_node_that_needs_more_downloads_that_alone() -> None:
    claims: dict[str, str] = {}
    share("node1", [A, B], claims)
    mine = share("node2", [A, C], claims)
    assert mine.own == (C,)
    assert mine.others == {"node1": (A,)}
    assert share("node3", [A, B, C], claims).others == {"node1": (A, B), "node2": (C,)}


def test_nodes_of_another_kind_do_not_wait() -> None:
    claims: dict[str, str] = {}
    share("node1", [A], claims)
    assert share("node2", [B], claims).others == {}


def test_the_same_name_with_other_content_is_another_file() -> None:
    claims: dict[str, str] = {}
    share("node1", [A], claims)
    other = Deb(A.name, 10, "d" * 64)
    assert share("node2", [other], claims).own == (other,)


def test_nodes_wait_for_earlier_ones_alone() -> None:
    claims: dict[str, str] = {}
    waits = {name: set(share(name, needed, claims).others) for name, needed in (("1", [A]), ("2", [B, A]), ("3", [B]))}
    assert waits == {"1": set(), "2": {"1"}, "3": {"2"}}
