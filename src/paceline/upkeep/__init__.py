"""Loops beside the flow of jobs."""
