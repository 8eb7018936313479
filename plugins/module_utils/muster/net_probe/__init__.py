"""The network between the nodes: whom to call, what the answers mean, and which node stands out.

`schedule` says who sends in bulk to whom and when; `links` lays what all nodes saw side by side; `blame` finds the node
behind several bad links; `reach`, `quality` and `names` make findings; `judge` puts them together.
"""
