"""Conversation lists, unread and mailboxes, derived from the dispatch log."""
