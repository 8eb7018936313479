"""What changes in the text of an inventory so that it says something else of a node; all other letters stay."""
