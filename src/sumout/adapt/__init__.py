"""What warm-up learns: step sizes, scales, noise."""
