"""Settings for every test."""

import torch

torch.set_num_threads(1)  # the tests' tensors are small; more threads only wait for each other
