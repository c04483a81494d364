"""The rules of the operator API. No transport is known here."""
