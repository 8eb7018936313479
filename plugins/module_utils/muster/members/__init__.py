"""Who belongs to the cluster and takes part: quarantine and its end, and nodes that leave it."""
