"""What must change on a node for apt and its certificates to be as requested: pure.

library/package_sources.py looks and does. What is no longer requested is taken back. What was there before is known
from the copy beside each source file, and nothing else is remembered.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .certificates import within
from .entries import STOCK_FILES, originals, retargeted

if TYPE_CHECKING:
    from collections.abc import Mapping

SAVED = ".muster.save"  # apt passes over files with this end
PROXY_FILE = "/etc/apt/apt.conf.d/51muster-proxy"
OFFLINE_FILE = "/etc/apt/apt.conf.d/51muster-offline"
OFFLINE_SOURCES = "/etc/apt/muster-offline.sources"
CERTIFICATES = "/usr/local/share/ca-certificates"
CERTIFICATE_LINKS = "/etc/ssl/certs"
_OURS = re.compile(r"muster(-\d+)?\.(crt|pem)")
HEAD = "Written by Muster (role package_sources)."
PROXY_KEYS = ("Acquire::http::Proxy", "Acquire::https::Proxy")


@dataclass(frozen=True)
class SourcesRequest:
    """archive, security: addresses of the distribution's archive; empty for the node's own. no_proxy: hosts.

    certificates: each in PEM. offline: folder on the node with debs/.
    """

    distribution: str
    archive: str = ""
    security: str = ""
    http_proxy: str = ""
    https_proxy: str = ""
    no_proxy: tuple[str, ...] = ()
    certificates: tuple[str, ...] = ()
    offline: str = ""


@dataclass(frozen=True)
class SourcesState:
    """files: what is in each file that could be ours to change. links: names of our links to certificates.

    bundle: the system's certificates; None where the package that keeps them is not installed. proxies: what apt goes
    by, by key. offline: what is wrong with the offline folder.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    links: tuple[str, ...] = ()
    bundle: str | None = ""
    proxies: Mapping[str, str] = field(default_factory=dict)
    offline: str = ""


@dataclass
class SourcesPlan:
    """write: contents by path, in the order of the writing. remove: paths, and after that the links to certificates.

    bundle: whether the system's certificates are to be put together anew. lists: whether apt is to read its lists.
    """

    write: dict[str, str] = field(default_factory=dict)
    remove: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    bundle: bool = False
    lists: bool = False
    differences: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    left_out: list[dict[str, str]] = field(default_factory=list)

    @property
    def needed(self) -> bool:
        return bool(self.write or self.remove or self.links or self.bundle)


def is_ours(name: str) -> bool:
    """Whether a certificate's file or link is one that we write."""
    return _OURS.fullmatch(name) is not None


def make_plan(request: SourcesRequest, seen: SourcesState) -> SourcesPlan:
    plan = SourcesPlan()
    _certificates(plan, request, seen)
    _own_file(plan, seen, PROXY_FILE, proxy_text(request), "apt's proxy")
    _proxy_in_force(plan, request, seen)
    _offline(plan, request, seen)
    for path in STOCK_FILES:
        _source_file(plan, request, seen, path)
    if (request.archive or request.security) and not any(
        originals(path, seen.files.get(path + SAVED, seen.files.get(path, "")), request.distribution)
        for path in STOCK_FILES
    ):
        plan.problems.append(
            f"no entry for the archive of {request.distribution} is in {', '.join(STOCK_FILES)}, so there is none to "
            "point at a mirror: set its apt up by hand, with package_sources_mode=off"
        )
    return plan


def proxy_text(request: SourcesRequest) -> str:
    """Return apt's settings for the proxies; empty for none. apt knows single hosts only, and no domains."""
    lines = [
        f'{key} "{proxy}";'
        for key, proxy in zip(PROXY_KEYS, (request.http_proxy, request.https_proxy), strict=True)
        if proxy
    ]
    if not lines:
        return ""
    direct = [host for host in request.no_proxy if not host.startswith(".") and "/" not in host and "*" not in host]
    lines += [f'{key}::{host} "DIRECT";' for host in direct for key in PROXY_KEYS]
    return f"// {HEAD}\n" + "\n".join(lines) + "\n"


def offline_texts(folder: str) -> dict[str, str]:
    """Return the files that let apt know of the folder, and of nothing else. It is trusted for being root's alone."""
    if not folder:
        return {OFFLINE_FILE: "", OFFLINE_SOURCES: ""}
    source = f"# {HEAD}\nTypes: deb\nURIs: file:{folder}/debs/\nSuites: ./\nTrusted: yes\n"
    settings = f'// {HEAD}\nDir::Etc::sourcelist "{OFFLINE_SOURCES}";\nDir::Etc::sourceparts "/dev/null";\n'
    return {OFFLINE_SOURCES: source, OFFLINE_FILE: settings}


def _own_file(plan: SourcesPlan, seen: SourcesState, path: str, text: str, what: str) -> None:
    there = seen.files.get(path)
    if there == (text or None):
        return
    if text:
        plan.write[path] = text
        plan.differences.append(f"{path} ({what}) {'has other content' if there else 'is missing'}")
    else:
        plan.remove.append(path)
        plan.differences.append(f"{path} ({what}) is there, and is not requested")
    plan.lists = True


def _proxy_in_force(plan: SourcesPlan, request: SourcesRequest, seen: SourcesState) -> None:
    if PROXY_FILE in plan.write:
        return
    for key, wanted in zip(PROXY_KEYS, (request.http_proxy, request.https_proxy), strict=True):
        live = seen.proxies.get(key, "")
        if wanted and live != wanted:
            plan.problems.append(
                f"apt goes by {key} {live or 'nothing'} and not {wanted}, though {PROXY_FILE} says so: "
                "find who says otherwise with grep -r Proxy /etc/apt/apt.conf*"
            )


def _offline(plan: SourcesPlan, request: SourcesRequest, seen: SourcesState) -> None:
    if request.offline and seen.offline:
        plan.problems.append(seen.offline)
        return
    for path, text in offline_texts(request.offline).items():
        _own_file(plan, seen, path, text, "the offline folder")


def _source_file(plan: SourcesPlan, request: SourcesRequest, seen: SourcesState, path: str) -> None:
    there, saved = seen.files.get(path), seen.files.get(path + SAVED)
    if there is None:
        if saved is not None:
            # Somebody took the file away since, as an upgrade of the system does.
            plan.remove.append(path + SAVED)
            plan.differences.append(f"{path}{SAVED} is left of a file that is gone")
        return
    text = retargeted(path, there, saved, request.distribution, request.archive, request.security)
    requested = bool(request.archive or request.security)
    if text != there:
        if saved is None:
            plan.write[path + SAVED] = there
        plan.write[path] = text
        plan.lists = True
        whither = "the mirror" if requested else "where they were before"
        plan.differences.append(f"entries in {path} do not point at {whither}")
    if saved is not None and not requested:
        plan.remove.append(path + SAVED)
        plan.differences.append(f"{path}{SAVED} is there, and no mirror is requested")


def _certificates(plan: SourcesPlan, request: SourcesRequest, seen: SourcesState) -> None:
    names = ["muster", *(f"muster-{number}" for number in range(2, len(request.certificates) + 1))]
    wanted = {f"{CERTIFICATES}/{name}.crt": text for name, text in zip(names, request.certificates, strict=False)}
    for path, text in wanted.items():
        if seen.files.get(path) != text:
            plan.write[path] = text
            plan.differences.append(f"{path} {'has other content' if path in seen.files else 'is missing'}")
    old = [path for path in seen.files if path.startswith(f"{CERTIFICATES}/") and path not in wanted]
    plan.remove += old
    plan.differences += [f"{path} is there, and is not requested" for path in old]
    kept = {path.rpartition("/")[2].removesuffix(".crt") + ".pem" for path in wanted}
    plan.links = [f"{CERTIFICATE_LINKS}/{name}" for name in seen.links if name not in kept]
    if plan.links and not old:
        plan.differences.append("a certificate that was taken away is still among those that the system trusts")
    if seen.bundle is None:
        if wanted:
            plan.left_out.append(
                {"id": "certificates", "why": "ca-certificates is not installed yet, and takes them in when it is"}
            )
            plan.links = []
        return
    missing = [path for path, text in wanted.items() if not within(text, seen.bundle)]
    if missing and not any(path in plan.write for path in missing):
        plan.differences.append(f"the system's certificates do not hold {', '.join(missing)}")
    plan.bundle = bool(missing or old or plan.links or any(path in plan.write for path in wanted))
