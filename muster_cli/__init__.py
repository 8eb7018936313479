"""The command `muster`: finds the cluster and replaces itself with ansible-playbook."""
