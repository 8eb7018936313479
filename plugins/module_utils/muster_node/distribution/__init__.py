"""Format, storage and transfer of content that nodes receive from the controller and from each other."""
