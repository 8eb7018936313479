"""The steps from bare machines to a verified launch, in their order."""
