"""Code that runs on nodes: tools, data collectors for modules, and programs that other Python interpreters run."""
