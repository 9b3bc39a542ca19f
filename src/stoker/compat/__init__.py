"""Interfaces of other libraries on Stoker's engine:
scripts written for these libraries run on the engine, and resume."""
