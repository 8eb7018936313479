"""This run of ansible-playbook: helpers of action plugins and callbacks for variables, options and the terminal."""
