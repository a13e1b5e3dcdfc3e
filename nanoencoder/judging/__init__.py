"""What predictions are worth. No torch."""
