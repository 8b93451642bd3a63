"""Programs that run in the examined interpreter: standard library only, imported by nobody."""
