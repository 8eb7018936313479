"""What is known of GPUs and of releases beforehand, derived from the one table in roles/gpu_stack/files/versions.yml."""
