"""Helpers of action plugins and callbacks for the current run: variables, options and the terminal."""
