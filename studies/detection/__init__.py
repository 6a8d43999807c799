"""Unsupervised anomaly detection on a folder of tables, against the detectors that people use today."""
