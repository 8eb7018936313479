"""Diagnosis of failed or hanging launches on the controller: checks the nodes and reads the logs of a launch."""
