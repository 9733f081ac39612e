"""What a person looks at: explanations of predictions, and pages that need nothing but a browser."""
