"""Edit the text of inventory files; everything that is not edited is kept unchanged."""
