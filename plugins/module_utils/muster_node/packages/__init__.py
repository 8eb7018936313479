"""Packages on a node: apt sources, repositories, package lists, and package files from peers."""
