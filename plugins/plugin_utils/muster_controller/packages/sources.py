"""Package sources and proxies of a node, for plugins on the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleError

from muster.packages.mirrors import CUSTOM, UPSTREAM, MirrorError, MirrorsRequest, proxy_environment, resolve
from muster_controller.playbook.variables import load_roles, project_root, read_values, value_of_nodes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible.parsing.dataloader import DataLoader
    from ansible.template import Templar

TABLE = "roles/package_sources/files/mirrors.yml"
_OPTIONS = (
    *("cluster_mirror", "cluster_mirror_urls", "cluster_offline_dir", "cluster_extra_ca"),
    *("cluster_http_proxy", "cluster_https_proxy", "cluster_no_proxy"),
)


def mirrors_table(loader: DataLoader) -> Mapping[str, Any]:
    table: Mapping[str, Any] = loader.load_from_file(str(project_root() / TABLE))
    return table


def node_request(task_vars: Mapping[str, Any], templar: Templar, loader: DataLoader, host: str) -> dict[str, Any]:
    """Return the package source options of this host, with defaults."""
    return read_values(task_vars, templar, load_roles(loader, "cluster"), host, _OPTIONS)


def pip_mirror(task_vars: Mapping[str, Any], templar: Templar, loader: DataLoader, host: str) -> dict[str, str]:
    """Return pip's sources for the requested mirror, empty for upstream; see pip_sources."""
    values = node_request(task_vars, templar, loader, host)
    request = MirrorsRequest(values["cluster_mirror"], values["cluster_mirror_urls"], values["cluster_offline_dir"])
    try:
        places = resolve(mirrors_table(loader), request, system="")  # pip's sources do not depend on the system
    except MirrorError as error:
        raise AnsibleError(f"{host}: {error}.") from error
    found = {"pip": places.pip.uri} if places.pip.uri else {}
    if places.torch.profile != UPSTREAM:
        found["torch_links" if places.torch.links else "torch"] = places.torch.uri
        # Nodes with a custom mirror may have no access to other sources.
        found |= {"only": CUSTOM} if places.torch.profile == CUSTOM else {}
    return found


def not_proxied(task_vars: Mapping[str, Any], templar: Templar, loader: DataLoader, host: str) -> list[str]:
    """Return the hosts to access without a proxy: localhost, all nodes, and cluster_no_proxy."""
    listed = node_request(task_vars, templar, loader, host)["cluster_no_proxy"]
    addresses = value_of_nodes(task_vars, templar, loader, "cluster_address")
    return list(dict.fromkeys(["localhost", "127.0.0.1", "::1", *addresses, *addresses.values(), *listed]))


def node_environment(task_vars: Mapping[str, Any], templar: Templar, loader: DataLoader, host: str) -> dict[str, str]:
    """Return the proxy variables for pip and key downloads on this host. Empty if no proxy is set."""
    values = node_request(task_vars, templar, loader, host)
    http, https = values["cluster_http_proxy"], values["cluster_https_proxy"]
    if not http and not https:
        return {}
    return proxy_environment(http, https, not_proxied(task_vars, templar, loader, host))
