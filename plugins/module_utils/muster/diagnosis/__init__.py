"""Why a launch failed or hangs: decided from what was seen of it, without I/O."""
