"""GPU software decisions that require the controller."""
