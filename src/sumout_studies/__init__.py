"""The three case studies of Tolpin, Zhou and Yang (2020), section 4: models and data."""
