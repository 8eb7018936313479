"""Artifacts of each run on the controller, artifacts/<cluster>/<run>/, and the record of all runs."""
