"""What a training step differentiates: queues and samplers of negatives, and the losses over them, one file each."""
