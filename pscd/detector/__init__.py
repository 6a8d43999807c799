"""Detector."""
