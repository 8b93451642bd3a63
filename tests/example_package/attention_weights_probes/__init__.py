"""Probes of attention that returns its weights; each file that does not begin with _ is one."""
