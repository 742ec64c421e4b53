"""Item and user encoders: the layers of the two towers."""
