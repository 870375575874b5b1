"""Which events indicate the failure: their features, the model that weighs them, the order they are listed in."""
