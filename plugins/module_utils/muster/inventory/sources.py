"""Check the options for mirrors, proxies, additional certificates and the offline folder."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..packages.certificates import CertificateError, certificates
from ..packages.mirrors import CUSTOM, CUSTOM_PLACES
from .model import CONTROLLER_FILES, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import Inventory

_PLACEHOLDERS = {"distribution", "distro", "arch", "debarch", "variant"}
_HOST = re.compile(r"\.?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|[0-9A-Fa-f:]+")


def mirror_urls_can_be_used(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        urls = node.variables.get("cluster_mirror_urls")
        if not isinstance(urls, dict):
            continue
        custom = node.text("cluster_mirror") == CUSTOM
        if custom and not urls:
            fix = f"Set at least one of {', '.join(CUSTOM_PLACES)}"
            what = "cluster_mirror is custom, but cluster_mirror_urls is empty"
            yield Problem(node.name, what, fix, option="cluster_mirror")
        if urls and not custom and "cluster_mirror" in node.variables:
            mirror = node.text("cluster_mirror")
            what = f"cluster_mirror_urls is set, but cluster_mirror is {mirror}, which does not use it"
            fix = "Set cluster_mirror to custom, or remove cluster_mirror_urls"
            yield Problem(node.name, what, fix, option="cluster_mirror_urls")
        for name, url in urls.items():
            if name not in CUSTOM_PLACES:
                what = f"cluster_mirror_urls has the unknown key {name!r}"
                yield Problem(node.name, what, f"Use {', '.join(CUSTOM_PLACES)}", option="cluster_mirror_urls")
            else:
                yield from _url(node.name, f"cluster_mirror_urls {name}", url)


def _url(place: str, what: str, url: object) -> Iterator[Problem]:
    text = url if isinstance(url, str) else ""
    if _password(text):
        fix = "Authorize the nodes by IP address on the mirror, or put the password in their /etc/apt/auth.conf.d"
        what = f"{what} contains a password that every user of a node could read"
        yield Problem(place, what, fix, option=what.split(maxsplit=1)[0])
    elif not re.fullmatch(r"(https?://[^\s/]+|file:)/\S*", text):
        what = f"{what} is {url!r}, which is not a URL"
        fix = "Set a URL such as http://mirror.lab/ubuntu/"
        yield Problem(place, what, fix, option=what.split(maxsplit=1)[0])
    unknown = sorted(set(re.findall(r"\{(\w*)\}", text)) - _PLACEHOLDERS)
    if unknown:
        names = ", ".join(f"{{{name}}}" for name in sorted(_PLACEHOLDERS))
        what = f"{what} has the unknown placeholder {{{unknown[0]}}}"
        fix = f"Use one of {names}"
        yield Problem(place, what, fix, option=what.split(maxsplit=1)[0])


def proxies_can_be_used(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        for name in ("cluster_http_proxy", "cluster_https_proxy"):
            text = node.text(name)
            if not text:
                continue
            if _password(text):
                fix = "Authorize the nodes by IP address on the proxy, or use a local proxy that logs in upstream"
                what = f"{name} contains a password that every user of a node could read"
                yield Problem(node.name, what, fix, option=name)
            elif not re.fullmatch(r"https?://([\w.-]+|\[[0-9A-Fa-f:]+\]):\d{1,5}/?", text, re.ASCII):
                fix = "Set a URL such as http://proxy.lab:3128"
                yield Problem(node.name, f"{name} is {text!r}, which is not a proxy URL", fix, option=name)
        hosts = node.variables.get("cluster_no_proxy")
        for host in hosts if isinstance(hosts, list) else ():
            if not _HOST.fullmatch(str(host)):
                what = f"cluster_no_proxy has {host!r}, which is not a host"
                fix = "Use host names, domain suffixes such as .example.org, or IP addresses, without http:// and port"
                yield Problem(node.name, what, fix, option="cluster_no_proxy")


def extra_certificates_are_certificates(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        name = node.text("cluster_extra_ca")
        if not name or name not in inventory.files:
            continue
        text = inventory.files[name]
        if text is None:
            what = f"cluster_extra_ca is {name}, which is missing or not readable on the controller"
            yield Problem(node.name, what, CONTROLLER_FILES, option="cluster_extra_ca")
            continue
        try:
            certificates(text)
        except CertificateError as error:
            fix = "Ask the operator of the proxy or mirror for its CA certificate"
            yield Problem(node.name, f"cluster_extra_ca is {name}, which {error}", fix, option="cluster_extra_ca")


def offline_folders_are_paths(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        folder = node.text("cluster_offline_dir")
        if folder and not re.fullmatch(r"/[\w./+-]*", folder, re.ASCII):
            what = f"cluster_offline_dir is {folder!r}, which cannot be used in an apt source"
            yield Problem(node.name, what, "Set an absolute path without spaces", option="cluster_offline_dir")


def _password(url: str) -> bool:
    try:
        return urlsplit(url).password is not None or "@" in urlsplit(url).netloc
    except ValueError:
        return "@" in url


def rules_of_diagnoses_can_be_used(inventory: Inventory) -> Iterator[Problem]:
    yield from inventory.rules
