"""Compute the changes on a node for the requested apt sources and certificates. Pure functions.

library/package_sources.py inspects the node and applies the changes. Settings that are no longer requested are
reverted. The original text of each source file is kept in a copy beside the file; Muster stores no other state.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .certificates import within
from .entries import STOCK_FILES, originals, retargeted

if TYPE_CHECKING:
    from collections.abc import Mapping

SAVED = ".muster.save"  # apt ignores files with this suffix
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
    """archive, security: URLs of the distribution's archive; "" for the node's own configuration. no_proxy: hosts.

    certificates: in PEM format. offline: folder on the node that contains debs/.
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
    """files: contents of the files that Muster may change. links: names of Muster's links to certificates.

    bundle: the system's certificates; None if the package ca-certificates is not installed. proxies: apt's effective
    values by key. offline: the problem with the offline folder; "" if there is none.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    links: tuple[str, ...] = ()
    bundle: str | None = ""
    proxies: Mapping[str, str] = field(default_factory=dict)
    offline: str = ""


@dataclass
class SourcesPlan:
    """write: contents by path, in the order of writing. remove: paths to remove. The links to certificates are removed
    after these files.

    bundle: whether to regenerate the system's certificate bundle. lists: whether to update apt's package lists.
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
    """Return whether a certificate file or a link to one was created by Muster."""
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
            f"no entry for the archive of {request.distribution} was found in {', '.join(STOCK_FILES)}, so "
            "Muster cannot set the mirror: configure apt manually and set package_sources_mode=off"
        )
    return plan


def proxy_text(request: SourcesRequest) -> str:
    """Return apt's proxy settings; "" for none. apt supports exceptions only for single hosts, not for domains."""
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
    """Return the files that restrict apt to the offline folder.

    The folder is trusted because only root can write to it.
    """
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
        plan.differences.append(f"{path} ({what}) exists but is not requested")
    plan.lists = True


def _proxy_in_force(plan: SourcesPlan, request: SourcesRequest, seen: SourcesState) -> None:
    if PROXY_FILE in plan.write:
        return
    for key, wanted in zip(PROXY_KEYS, (request.http_proxy, request.https_proxy), strict=True):
        live = seen.proxies.get(key, "")
        if wanted and live != wanted:
            plan.problems.append(
                f"{key} of apt is {live or 'empty'} instead of {wanted}, although {PROXY_FILE} sets it. "
                "Find the overriding setting: grep -r Proxy /etc/apt/apt.conf*"
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
            # The source file was removed meanwhile, for example by an upgrade of the system.
            plan.remove.append(path + SAVED)
            plan.differences.append(f"{path}{SAVED} is a copy of a file that no longer exists")
        return
    text = retargeted(path, there, saved, request.distribution, request.archive, request.security)
    requested = bool(request.archive or request.security)
    if text != there:
        if saved is None:
            plan.write[path + SAVED] = there
        plan.write[path] = text
        plan.lists = True
        whither = "the mirror" if requested else "their original URLs"
        plan.differences.append(f"entries in {path} do not point to {whither}")
    if saved is not None and not requested:
        plan.remove.append(path + SAVED)
        plan.differences.append(f"{path}{SAVED} exists but no mirror is requested")


def _certificates(plan: SourcesPlan, request: SourcesRequest, seen: SourcesState) -> None:
    names = ["muster", *(f"muster-{number}" for number in range(2, len(request.certificates) + 1))]
    wanted = {f"{CERTIFICATES}/{name}.crt": text for name, text in zip(names, request.certificates, strict=False)}
    for path, text in wanted.items():
        if seen.files.get(path) != text:
            plan.write[path] = text
            plan.differences.append(f"{path} {'has other content' if path in seen.files else 'is missing'}")
    old = [path for path in seen.files if path.startswith(f"{CERTIFICATES}/") and path not in wanted]
    plan.remove += old
    plan.differences += [f"{path} exists but is not requested" for path in old]
    kept = {path.rpartition("/")[2].removesuffix(".crt") + ".pem" for path in wanted}
    plan.links = [f"{CERTIFICATE_LINKS}/{name}" for name in seen.links if name not in kept]
    if plan.links and not old:
        plan.differences.append("a removed certificate is still trusted by the system")
    if seen.bundle is None:
        if wanted:
            plan.left_out.append(
                {
                    "id": "certificates",
                    "why": "ca-certificates is not installed yet; its installation will add the certificates",
                }
            )
            plan.links = []
        return
    missing = [path for path, text in wanted.items() if not within(text, seen.bundle)]
    if missing and not any(path in plan.write for path in missing):
        plan.differences.append(f"the system's certificates do not include {', '.join(missing)}")
    plan.bundle = bool(missing or old or plan.links or any(path in plan.write for path in wanted))
