"""What a training tells those who operate it while it runs: metrics for Prometheus, and profiles on demand."""
