"""The training engine: plain PyTorch loops that resume bit-exactly.
The engine needs torch, but neither the server nor the command line."""
