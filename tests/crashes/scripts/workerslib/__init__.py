"""The stream of workers_3."""
from workerslib.stream import Stream
