"""Language models: the model, its training step, evaluation and sampling."""
