"""What warm-up learns: step size, mass matrix, bias."""
