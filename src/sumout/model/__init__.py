"""What the user wrote → Program."""
