"""Running commands, reading and writing files, naming processes: each once, for everything that runs on nodes."""
