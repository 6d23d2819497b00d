"""The search service: ranks the tools that gateways send."""
