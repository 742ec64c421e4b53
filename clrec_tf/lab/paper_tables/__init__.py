"""The paper's tables: rows of runs that are trained and evaluated as the commands do, beside the published figures."""
