class OmegaConf:
    @staticmethod
    def to_container(config, resolve):
        return config
