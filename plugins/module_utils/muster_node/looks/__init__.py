"""What is seen on a node, one file for each subject, under the name of the judge that reads it."""
