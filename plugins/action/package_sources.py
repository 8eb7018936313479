"""Pass values from the controller to the module package_sources; documented in library/package_sources.py."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail

from muster.packages.certificates import CertificateError, certificates
from muster_controller.packages.sources import mirrors_table, node_request, not_proxied
from muster_controller.playbook.action import FilledIn
from muster_controller.playbook.variables import controller_file


class ActionModule(FilledIn):
    def from_inventory(self) -> dict[str, Any]:
        request = node_request(self.task_vars, self._templar, self._loader, self.node)
        proxied = request["cluster_http_proxy"] or request["cluster_https_proxy"]
        return {
            "table": mirrors_table(self._loader),
            "mirror": request["cluster_mirror"],
            "mirror_urls": request["cluster_mirror_urls"],
            "http_proxy": request["cluster_http_proxy"],
            "https_proxy": request["cluster_https_proxy"],
            "no_proxy": not_proxied(self.task_vars, self._templar, self._loader, self.node) if proxied else [],
            "certificates": self.certificates(self.node, request["cluster_extra_ca"]),
            "offline_dir": request["cluster_offline_dir"],
        }

    def certificates(self, node: str, name: str) -> list[str]:
        if not name:
            return []
        text = controller_file(name)
        if text is None:
            raise AnsibleActionFail(f"{node}: cluster_extra_ca {name} cannot be read on the controller.")
        try:
            return certificates(text)
        except CertificateError as error:
            raise AnsibleActionFail(f"{node}: cluster_extra_ca {name} {error}.") from error
