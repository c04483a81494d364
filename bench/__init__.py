"""Benchmarks of the commit path, repeatable on one machine: `python -m bench --help`."""
