"""Measurements of a whole gateway. They print figures and assert none; ratios within one run are what counts."""
