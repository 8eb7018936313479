"""Package sources: apt repositories, mirrors, certificates, and files that nodes share."""
