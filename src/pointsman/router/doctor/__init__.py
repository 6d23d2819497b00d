"""The checks of `pointsman doctor`: one function for each thing that can be wrong, with the next step."""
