"""Where packages come from: apt's repositories and sources, mirrors, certificates, and files that nodes share."""
