"""`qimctl timeline`: a group's line of events and each person's stays, in the terminal and as a picture."""
