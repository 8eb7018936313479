"""Package sources: apt repositories, mirrors, certificates, and package files that nodes fetch from each other."""
