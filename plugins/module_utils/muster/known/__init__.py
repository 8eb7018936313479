"""Data about GPUs and releases, generated from the table roles/gpu_stack/files/versions.yml."""
