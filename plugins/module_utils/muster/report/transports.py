"""The transports that the ranks actually used: a map of all rank pairs, or of node pairs if there are many ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..acceptance.metrics import positive, rows, word
from ..verdict.words import few, plural
from . import links

if TYPE_CHECKING:
    from collections.abc import Mapping

RANKS_UP_TO = 12  # with more, the map shows node pairs
UNFOLDED = 24  # nodes; a larger map is one click away
# (prefix of NCCL's name, colour, sign in a small map, description), best first.
KINDS = (
    ("NVLS", "good", "NL", "NVLink switch"),
    ("NVL", "good", "NV", "NVLink"),
    ("P2P", "good", "P2P", "directly between GPUs"),
    ("SHM", "bad1", "shm", "host memory"),
    ("NET/IB", "good", "IB", "InfiniBand or RoCE"),
    ("NET/SOCKET", "bad2", "tcp", "TCP sockets"),
    ("TCP", "none", "tcp", "Gloo (TCP)"),
)
OTHER = ("", "bad1", "?", "other")


def transport(smoke: Mapping[str, Any]) -> dict[str, Any] | None:
    told = smoke.get("transport")
    pairs = [(word(one.get("from")), word(one.get("to")), word(one.get("kind"))) for one in rows(told, "pairs")]
    pairs = [pair for pair in pairs if all(pair)]
    if not pairs or not isinstance(told, dict):
        return None
    nodes = {word(rank.get("rank")): word(rank.get("node")) for rank in rows(smoke, "ranks")}
    names = list(dict.fromkeys(name for pair in pairs for name in pair[:2]))
    names.sort(key=lambda name: (0, int(name), "") if name.isdecimal() else (1, 0, name))
    folded = len(names) > RANKS_UP_TO
    label = {name: nodes.get(name, name) if folded else _rank(name) for name in names}
    shown = list(dict.fromkeys(label[name] for name in names))
    place = {name: number for number, name in enumerate(shown)}
    cells: dict[tuple[int, int], dict[str, Any]] = {}
    for one, other, kind in pairs:
        cell = cells.setdefault((place[label[one]], place[label[other]]), {"kind": kind, "count": 0})
        cell["count"] += 1
        if _row(kind) > _row(cell["kind"]):
            cell["kind"] = kind
    ways: dict[tuple[str, bool], int] = {}
    for one, other, kind in pairs:
        way = (kind, nodes.get(one, one) == nodes.get(other, other))
        ways[way] = ways.get(way, 0) + 1
    about = "the worst transport between ranks of two nodes" if folded else "from row rank to column rank"
    drawn = {**links.draw("Transport", about, shown, cells, _read), "hint": ""}
    offered = told.get("offered")
    return {
        "map": drawn,
        "large": len(shown) > UNFOLDED,
        "ways": [
            {"kind": kind, "is": _meaning(kind)[3], "where": "in a node" if inside else "between nodes", "count": count}
            for (kind, inside), count in sorted(ways.items(), key=lambda way: (-_row(way[0][0]), -way[1]))
        ],
        "offered": _offered(offered),
    }


def _offered(told: Any) -> str:
    """Describe which hardware links are available. Nodes with the same links are grouped."""
    groups: dict[str, list[str]] = {}
    for node, said in told.items() if isinstance(told, dict) else ():
        if not isinstance(said, dict):
            continue
        ports = [one for one in rows(said, "adapters") if one.get("active") is True]
        kinds = dict.fromkeys(f"{word(one.get('layer'))} {word(one.get('rate'))}".strip() for one in ports)
        has = ["NVLink"] if said.get("nvlink") else []
        has += [f"{plural(len(ports), 'active RDMA port')} ({few(list(kinds))})"] if ports else []
        groups.setdefault(", ".join(has) or "no NVLink and no active RDMA port", []).append(word(node))
    return "; ".join(f"{few(nodes)}: {what}" for what, nodes in groups.items())


def pairs(smoke: Mapping[str, Any]) -> dict[str, Any] | None:
    """Map the bandwidth of pairs, which are measured separately only if the whole cluster was slow."""
    measured = [
        (word(one.get("a")), word(one.get("b")), value)
        for one in rows(smoke.get("bandwidth"), "pairs")
        if (value := positive(one.get("gbps"))) is not None
    ]
    names = list(dict.fromkeys(name for one, other, _ in measured for name in (one, other)))
    if len(names) < 2:
        return None
    place = {name: number for number, name in enumerate(names)}
    cells = {}
    for one, other, value in measured:
        cells[place[one], place[other]] = cells[place[other], place[one]] = {"gbps": value}
    told = smoke["bandwidth"]
    usual, slow = positive(told.get("usual_pair")), positive(told.get("slow_pair"))
    shades = links.narrow([cell["gbps"] for cell in cells.values()], "GB/s", usual, slow)
    return links.draw(
        "Pairs measured alone", "GB/s, same in both directions", [_rank(name) for name in names], cells, shades
    )


def _read(cell: Mapping[str, Any]) -> links.Read:
    _, css, sign, meaning = _meaning(cell["kind"])
    many = f", {cell['count']} pairs of ranks" if cell["count"] > 1 else ""
    return links.Shade(css, meaning), sign, f"{cell['kind']}{many}"


def _meaning(kind: str) -> tuple[str, str, str, str]:
    return KINDS[_row(kind)] if _row(kind) < len(KINDS) else OTHER


def _row(kind: str) -> int:
    found = (number for number, (begins, *_) in enumerate(KINDS) if kind.upper().startswith(begins))
    return next(found, len(KINDS))


def _rank(name: str) -> str:
    return f"rank {name}" if name.isdecimal() else name
