"""What is known of GPUs and releases, derived from the one table in roles/gpu_stack/files/versions.yml."""
