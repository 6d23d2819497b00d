"""Words with slips in them: what was meant."""
