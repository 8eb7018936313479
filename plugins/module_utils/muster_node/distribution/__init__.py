"""Content that nodes get from the controller and from each other: what it is, where it lies, who gives it out."""
