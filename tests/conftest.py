"""One thread of torch in every test: as in a run, and so that two test processes do not fight for two cores."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
