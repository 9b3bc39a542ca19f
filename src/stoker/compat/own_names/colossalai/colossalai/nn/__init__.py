"""The package colossalai.nn."""
