"""The archiver: what is committed is brought into the archive, and old records leave Redis afterwards."""
