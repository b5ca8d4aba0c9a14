"""The normal distribution: cdf and quantile of arrays, and the bivariate cdf that a Gaussian copula needs.

The scalar functions of the standard library are accurate to the last digits and cost about 0.1 µs an
element through ``map``, as much as a vectorised rational approximation costs at the sizes used here.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_SQRT_HALF = math.sqrt(0.5)
_STANDARD = NormalDist()
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


def cdf(x: npt.ArrayLike) -> Floats:
    """Φ(x) elementwise, shape kept; infinities allowed."""
    x = np.asarray(x, dtype=np.float64)
    tails = np.fromiter(map(math.erfc, (x * -_SQRT_HALF).ravel().tolist()), np.float64, x.size)
    return 0.5 * tails.reshape(x.shape)


def quantile(p: npt.ArrayLike) -> Floats:
    """Φ⁻¹(p) elementwise, shape kept (Wichura's AS 241). Raises statistics.StatisticsError unless 0 < p < 1."""
    p = np.asarray(p, dtype=np.float64)
    values = np.fromiter(map(_STANDARD.inv_cdf, p.ravel().tolist()), np.float64, p.size)
    return values.reshape(p.shape)


def scalar_cdf(x: float) -> float:
    """Φ(x); infinities allowed."""
    return 0.5 * math.erfc(-x * _SQRT_HALF)


def scalar_quantile(p: float) -> float:
    """Φ⁻¹(p), with −inf at 0 and inf at 1."""
    if p <= 0.0:
        return -math.inf
    return math.inf if p >= 1.0 else _STANDARD.inv_cdf(p)


def bivariate_cdf(h: float, k: float, correlation: float) -> float:
    """Φ₂(h, k; ρ) = P(X ≤ h, Y ≤ k) of standard normals with correlation ρ; absolute error below 1e-14.

    Plackett's identity (Biometrika 41, 1954; Drezner and Wesolowsky 1990) gives ∂Φ₂/∂ρ as the bivariate
    density. Integrated from ρ = 0 with ρ = cos ε, for ρ > 0,

        Φ₂(h, k; ρ) = Φ(h)Φ(k) + (1/2π) ∫ exp(−[(h − k)² + 4hk sin²(ε/2)] / (2 sin² ε)) dε, arccos ρ ≤ ε ≤ π/2.

    Near ρ = 1 the integrand changes on the scale of ε itself. Panels of equal width in log ε follow it, so
    Gauss-Legendre nodes keep full accuracy for every ρ. Negative ρ by reflection.
    """
    if -math.inf in (h, k):
        return 0.0
    if math.inf in (h, k):
        return scalar_cdf(min(h, k))
    if correlation < 0.0:
        return scalar_cdf(h) - bivariate_cdf(h, -k, -correlation)
    lowest = math.acos(min(correlation, 1.0))
    if lowest == 0.0:
        return scalar_cdf(min(h, k))
    width = math.log(0.5 * math.pi / lowest)
    panels = max(1, math.ceil(width))
    step = width / panels
    log_epsilon = math.log(lowest) + step * (np.arange(panels)[:, None] + 0.5 * (_NODES + 1.0))
    epsilon = np.exp(log_epsilon)
    exponent = ((h - k) ** 2 + 4.0 * h * k * np.sin(0.5 * epsilon) ** 2) / (2.0 * np.sin(epsilon) ** 2)
    integral = 0.5 * step * float(np.sum(_WEIGHTS * epsilon * np.exp(-exponent)))
    return scalar_cdf(h) * scalar_cdf(k) + integral / (2.0 * math.pi)
