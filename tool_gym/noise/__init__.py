"""Noise models: which of the calls that would have worked are made to fail, and what the policy sees then."""

from tool_gym.noise.burst import BurstNoise
from tool_gym.noise.correlated import CorrelatedNoise
from tool_gym.noise.faults import FAULTS, KINDS, Fault, FaultMix, apply_fault
from tool_gym.noise.models import Calls, IIDNoise, NoiseModel, NoNoise
from tool_gym.noise.named import NOISES, named_noise
from tool_gym.noise.per_tool import PerToolNoise

__all__ = [
    "FAULTS",
    "KINDS",
    "NOISES",
    "BurstNoise",
    "Calls",
    "CorrelatedNoise",
    "Fault",
    "FaultMix",
    "IIDNoise",
    "NoNoise",
    "NoiseModel",
    "PerToolNoise",
    "apply_fault",
    "named_noise",
]
