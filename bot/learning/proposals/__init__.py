"""Proposals of rules: kept in the store, published as branches and pull requests."""
