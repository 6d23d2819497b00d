"""One module a screen; `registry` names them."""
