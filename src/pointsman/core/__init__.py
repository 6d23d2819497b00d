"""The ground floor: words, errors and JSON-RPC codes that every other package uses. Imports nothing of ours."""
