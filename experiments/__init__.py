"""Sweeps, statistics and reports over runs of agents."""
