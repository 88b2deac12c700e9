"""Regular-expression subscriptions: validation, and rounds that match many expressions against many names."""
