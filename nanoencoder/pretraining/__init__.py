"""Where a pretraining begins, what it writes, what it costs."""
