// Hidden Markov model: the states 0, 1, 2 are summed out by the forward pass; the first state has no term of its own.
data {
  int<lower=1> N;
  vector[N] y;
}
transformed data {
  int K = 3;
  real noise = 0.5;
}
parameters {
  array[K] vector[K] logits; // row j: from state j
}
model {
  array[K] vector[K] log_transition;
  array[N] vector[K] gamma;
  for (j in 1:K) {
    logits[j] ~ normal(0, 10);
    log_transition[j] = log_softmax(logits[j]);
  }
  for (k in 1:K) {
    gamma[1, k] = normal_lpdf(y[1] | k - 1, noise);
  }
  for (n in 2:N) {
    for (k in 1:K) {
      vector[K] paths;
      for (j in 1:K) {
        paths[j] = gamma[n - 1, j] + log_transition[j, k];
      }
      gamma[n, k] = log_sum_exp(paths) + normal_lpdf(y[n] | k - 1, noise);
    }
  }
  target += log_sum_exp(gamma[N]);
}
