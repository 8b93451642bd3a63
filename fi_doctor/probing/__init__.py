"""Probes: which there are (catalog), which to try here (plan), and what happened to them (run)."""
