"""The gateway's own authorization server: clients ask, the owner consents, and a grant stands where a token does.

A request passes `requests` (is it well formed?), `clients` (who asks?), the consent page (`router/page/consent.py`),
`server` (codes, tokens and grants) and `store` (what all replicas agree on). `endpoints` are the paths for programs.
"""
