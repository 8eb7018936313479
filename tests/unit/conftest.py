"""Ansible's plugins, as ansible-playbook loads them: lookups in role defaults have their full names."""

from ansible.plugins.loader import init_plugin_loader

import ctrl_c

init_plugin_loader()
ctrl_c.restore()
