"""This run of ansible-playbook: what every action plugin and callback needs of its variables, options and terminal."""
