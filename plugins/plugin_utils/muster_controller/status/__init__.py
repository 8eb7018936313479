"""The one screen of how the cluster is."""
