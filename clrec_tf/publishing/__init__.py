"""From a checkpoint to a bundle that is proved before it is shown, and updates of one."""
