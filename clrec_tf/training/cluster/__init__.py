"""Training on a cluster: roles, the chief's runtime, its watch and the evaluator."""
