"""The SQLite store: the steps of `stores/steps` inside transactions of one file, for any number of processes."""
