"""Why a launch failed or hangs: what is asked of its nodes, and what is read from logs."""
