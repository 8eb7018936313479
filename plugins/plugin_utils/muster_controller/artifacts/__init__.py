"""Artifacts that the controller keeps of each run, artifacts/<cluster>/<run>/, and the record of all runs."""
