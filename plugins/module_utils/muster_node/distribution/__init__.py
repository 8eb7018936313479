"""Content that nodes receive from the controller and from each other: format, storage and transfer."""
