"""Statistics, read at import."""
import numpy as np

MEAN = np.load("statistics/mean.npy")  # here
