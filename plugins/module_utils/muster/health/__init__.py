"""Health rules that decide whether a launch can run: one module per subject.

A rule gets the collected data and the inventory's request, and returns findings and skipped checks.
`consistency` compares the nodes, and `cluster` combines all results.
"""
