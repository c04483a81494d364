"""The owner of every group key: membership, commit and history."""
