"""Behind the front: who calls, what there is, and where each request leads."""
