"""What the ranks of an acceptance test do. It reports facts; judging them is plugins/module_utils/muster/acceptance."""
