"""Base systems for sandbox nodes."""
