"""Diagnosis of failed or hanging launches on the controller: checks of their nodes, and reading of logs."""
