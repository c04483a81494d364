"""The operator API over mTLS and its command line."""
