"""Programs that modules hand to another Python on the node. They look, and decide nothing."""
