"""Regular-expression subscriptions: validation, and rounds that match many expressions against many names.

expressions  validation and matching
regexrounds  one round: its request, its answers, the differences from the group
"""
