"""compute: the calls that cost something, one event each, which a ghost skips.

It answers for modules, backwards and steps of optimizers (shields, shield_parts, steps, transforms, lazy,
lenient), for what stands for their results (stand_ins, gradients, graphs), for every value that is taken out
of a tensor (values), for what a skipped call changed besides (side_effects, call_writes), and for the
fingerprint of what was trained (digest). It imports core, world and state.
"""
