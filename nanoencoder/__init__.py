"""What stands behind the scripts. Nobody needs it to follow a training step."""
