"""Push notifications out of the dispatch log (docs/push.md)."""
