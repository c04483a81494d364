"""What is decided without I/O: positions, folding, membership, cursors."""
