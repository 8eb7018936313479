"""Programs that are sent to a node whole, each run by one verb with a JSON object on its standard input."""
