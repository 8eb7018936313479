"""The steps of site.yml, in order."""
