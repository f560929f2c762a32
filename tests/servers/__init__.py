"""Real servers for tests, brought by ordinary packages: nothing has to be installed or running."""
