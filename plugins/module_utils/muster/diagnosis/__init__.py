"""Diagnosis of failed or hanging launches from recorded evidence, without I/O."""
