"""Types, errors and JSON-RPC codes that every other package uses. Imports no other package of ours."""
