"""`placement: one`: a server that one worker runs, and that the others reach through it."""
