"""What layers are trained for: language models and text classifiers, their data, and one training loop."""
