"""Health rules that decide whether a launch can run, in one module per subject.

A rule receives the collected data and the requested state from the inventory, and returns findings and skipped checks.
`consistency` compares the nodes, and `cluster` combines all results.
"""
