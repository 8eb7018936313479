"""Launches as job files of other systems: a batch script for Slurm, and a JobSet for Kubernetes."""
