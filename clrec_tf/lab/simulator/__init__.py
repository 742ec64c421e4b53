"""Generated logs of known exposure and relevance, and models trained on them, judged by the truth."""
