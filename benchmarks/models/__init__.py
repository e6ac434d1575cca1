"""The ten models, a file each."""
