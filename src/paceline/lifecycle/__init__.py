"""A job's life, one step per file: enqueue → (store) → claim → run → finish."""
