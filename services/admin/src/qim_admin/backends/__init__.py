"""What the commands' Protocols are made of."""
