"""Item and user encoders: the two towers (paper, appendix "Implementation Details")."""
