"""The report of a run: events from the callbacks, the page, and junit.xml."""
