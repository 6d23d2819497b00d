"""The search service: gateways send the tools that a caller may use, and get them ranked."""
