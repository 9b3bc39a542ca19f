"""The part of this library that the hooks look into."""

def _save_config(cfg, filename, output_dir):
    import omegaconf  # noqa: F401
