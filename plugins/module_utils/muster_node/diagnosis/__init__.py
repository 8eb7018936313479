"""What a node looks at for the diagnosis of a launch; the shapes are those of muster/diagnosis/evidence.py."""
