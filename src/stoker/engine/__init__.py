"""The training engine: plain PyTorch loops that resume with the same bits.
It needs torch, and neither the server nor the command line."""
