"""Self-contained programs that run on nodes. Each call has one verb as argument and a JSON object on standard input."""
