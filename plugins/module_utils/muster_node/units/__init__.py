"""Programs that data collectors start on a node: in a unit like that of a launch, or with another interpreter."""
