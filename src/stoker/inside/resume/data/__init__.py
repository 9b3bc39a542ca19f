"""data: loaders, samplers and workers.

It answers for each iterator over a DataLoader as an event (loader), for what must be known of it and of its
sampler (loader_state, samplers), for what runs in worker processes (workers;
loader refuses exact resume for what they write), and for iterators that go on where they were (reopen).
It imports core, world, state and compute.
"""
