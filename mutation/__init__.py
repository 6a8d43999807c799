"""Mutation testing: small mistakes planted in the code, one at a time, and whether the tests notice; `make mutants`."""
