"""`make replay`: imports a room's history into a suite of its own and compares what each person sees in the end.

`answers` reads the right ones, `sights` looks through the public API, and `python -m qim_devkit.replay` does it all.
"""
