"""Distribution of .deb downloads, and parsing of apt's output."""

from __future__ import annotations

from muster.packages.debs import Deb, DebShare, parse_uris, share

A, B, C = (Deb(f"{name}_1_amd64.deb", 10, name * 64) for name in "abc")
PRINTED = f"""\
'http://mirror.lab/ubuntu/pool/a_1_amd64.deb' a_1_amd64.deb 10 SHA256:{"a" * 64}
'http://mirror.lab/ubuntu/pool/c_1%2b2_amd64.deb' c_1%3a1+2_amd64.deb 10 SHA256:{"c" * 64}
'http://mirror.lab/ubuntu/pool/m_1_amd64.deb' m_1_amd64.deb 10 MD5Sum:{"0" * 32}
'http://mirror.lab/ubuntu/pool/n_1_amd64.deb' n_1_amd64.deb 10 \n\
'file:/srv/debs/./f_1_amd64.deb' f_1_amd64.deb 10 SHA256:{"f" * 64}
N: Download is performed unsandboxed as root
"""


def test_files_without_a_checksum_or_already_present_are_left_to_apt() -> None:
    assert parse_uris(PRINTED) == [
        Deb("a_1_amd64.deb", 10, "a" * 64),
        Deb("c_1%3a1+2_amd64.deb", 10, "c" * 64),
    ]


def test_node_without_downloads_needs_no_files() -> None:
    assert parse_uris("") == []


def test_package_specification_contains_the_exact_version() -> None:
    names = ("a_1_amd64.deb", "libc6_1%3a2.3-4+b1_i386.deb", "doc_2~rc1_all.deb")
    assert [Deb(name, 1, "").spec for name in names] == ["a:amd64=1", "libc6:i386=1:2.3-4+b1", "doc=2~rc1"]


def test_first_node_downloads_for_all_nodes() -> None:
    nothing_own = DebShare(others={"node2": (A, B)})
    assert share({"node2": [A, B], "node1": [A, B], "node3": [B, A]}) == {
        "node2": DebShare(own=(A, B)),
        "node1": nothing_own,
        "node3": DebShare(others={"node2": (B, A)}),
    }


def test_node_downloads_only_its_additional_files() -> None:
    shares = share({"node1": [A, B], "node2": [A, C], "node3": [A, B, C]})
    assert shares["node2"] == DebShare(own=(C,), others={"node1": (A,)})
    assert shares["node3"].others == {"node1": (A, B), "node2": (C,)}


def test_nodes_with_different_packages_share_no_files() -> None:
    assert share({"node1": [A], "node2": [B]})["node2"] == DebShare(own=(B,))


def test_same_name_with_a_different_hash_is_a_different_file() -> None:
    other = Deb(A.name, 10, "d" * 64)
    assert share({"node1": [A], "node2": [other]})["node2"] == DebShare(own=(other,))
