"""`qim import`: replays a history of joins, leaves and messages through the public API (docs/import-format.md).

`lines` reads the file, `batches` and `ids` decide what goes into one call, `cursor` remembers durably how far it has
come, `importer` does the calls, `progress` shows them, and `command` is the command line.
"""
