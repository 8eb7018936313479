"""Whether a launch will run here: the rules, one module for each subject, and what they add up to.

A rule takes what was looked at and what the inventory wants, and returns findings and what could not be looked at.
`consistency` lays the nodes beside each other, and `cluster` puts everything together.
"""
