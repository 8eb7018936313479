"""The present state of a node, the record of its last installation, and the authors of changes in its logs."""
