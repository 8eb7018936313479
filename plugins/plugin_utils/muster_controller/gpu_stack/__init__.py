"""Decisions about GPU software that need data on the controller."""
