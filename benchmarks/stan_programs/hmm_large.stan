// Hidden Markov model with means in order: the states are summed out; the one before the first is state 1.
data {
  int T;
  int K;
  vector[T] y;
  array[K] vector[K] prior;
  vector[K] base_mean;
  vector[K] base_sd;
}
parameters {
  array[K] simplex[K] rows;
  vector[K] mu_base;
  real<lower=0> sigma;
}
transformed parameters {
  vector[K] mu = append_row(mu_base[1], mu_base[1] + cumulative_sum(exp(mu_base[2:K])));
}
model {
  matrix[K, K] transition;
  matrix[K, T] emission;
  mu_base ~ normal(base_mean, base_sd);
  sigma ~ lognormal(-0.5, 0.5);
  for (k in 1:K) {
    rows[k] ~ dirichlet(prior[k]);
    transition[k] = rows[k]';
  }
  for (t in 1:T) {
    for (k in 1:K) {
      emission[k, t] = normal_lpdf(y[t] | mu[k], sigma);
    }
  }
  target += hmm_marginal(emission, transition, rows[1]);
}
