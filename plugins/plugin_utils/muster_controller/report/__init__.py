"""The report of a run: what its callbacks saw, the page, and junit.xml."""
