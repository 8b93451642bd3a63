"""Work on the nodes of a Ray cluster: who is there, what is sent there, what comes back.

Ray is imported in `ray_grid` and `connecting` only, and there by its name; all else works on plain values.
"""
