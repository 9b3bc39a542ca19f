"""Brings its data along."""
from numpylib import data
