"""The Redis store: every step of a job is one Lua script; the files in `lua/` are named after the steps."""
