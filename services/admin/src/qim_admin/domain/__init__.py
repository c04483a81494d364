"""What operators ask for and what they get, as values. Pure; ids are checked where a command takes them.

Field names are those of admin.proto, so that a refusal names the field as the caller wrote it.
"""
