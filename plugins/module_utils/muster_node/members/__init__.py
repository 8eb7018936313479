"""What a node keeps about its place in the cluster, and what is taken off it when it leaves."""
