"""Noise models: which of the calls that would have worked are made to fail, and what the policy sees then."""

from tool_gym.noise.correlated import CorrelatedNoise
from tool_gym.noise.faults import FAULTS, apply_fault
from tool_gym.noise.models import IIDNoise, NoiseModel, NoNoise

__all__ = ["FAULTS", "CorrelatedNoise", "IIDNoise", "NoNoise", "NoiseModel", "apply_fault"]
