"""Combined inspection for the steps of site.yml."""
