"""Find and change values in the inventory files of this run."""
