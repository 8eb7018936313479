"""Edit the text of inventory files. Everything outside the edited lines stays unchanged."""
