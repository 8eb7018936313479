"""Ansible's plugins, as ansible-playbook loads them: lookups in role defaults have their full names."""

from ansible.plugins.loader import init_plugin_loader

init_plugin_loader()
