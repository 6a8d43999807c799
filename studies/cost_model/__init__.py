"""What training together costs: a model of an update over several processes, beside what is measured here."""
