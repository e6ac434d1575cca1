// Gaussian mixture: two components of equal weight; the component of each point is summed out.
data {
  int<lower=0> N;
  vector[N] y;
}
parameters {
  vector[2] mu;
  vector<lower=0>[2] sigma;
}
model {
  mu ~ normal(0, 10);
  sigma ~ lognormal(0, 10);
  for (n in 1:N) {
    target += log_mix(0.5, normal_lpdf(y[n] | mu[1], sigma[1]), normal_lpdf(y[n] | mu[2], sigma[2]));
  }
}
