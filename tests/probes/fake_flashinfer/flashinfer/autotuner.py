class AutoTuner:
    @classmethod
    def get(cls):
        return cls()

    def choose_one(self, custom_op, runners, tuning_config, inputs, **kwargs):
        return runners[0], -1
