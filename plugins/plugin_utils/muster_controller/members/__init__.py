"""Who belongs to the cluster: nodes that come, go, and are left out for a while."""
