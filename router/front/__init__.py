"""The protocol front: HTTP and both eras on one side, `Gateway` on the other."""
