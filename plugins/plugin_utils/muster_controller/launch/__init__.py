"""The stages of a launch: options, preparation, reservation, start, supervision, stop, and the artifacts."""
