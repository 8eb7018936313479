"""The report of a run: the events from callbacks, the report page, and junit.xml."""
