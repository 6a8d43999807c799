"""Energies."""
