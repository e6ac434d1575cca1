// Gaussian mixture with means in order: the component of each point is summed out.
data {
  int N;
  int K;
  vector[N] y;
  vector[K] base_mean;
  vector[K] base_sd;
}
parameters {
  simplex[K] weights;
  vector[K] mu_base;
  vector<lower=0>[K] sigma;
}
transformed parameters {
  vector[K] mu = append_row(mu_base[1], mu_base[1] + cumulative_sum(exp(mu_base[2:K])));
}
model {
  vector[K] log_weights = log(weights);
  mu_base ~ normal(base_mean, base_sd);
  sigma ~ lognormal(0, 0.5);
  for (n in 1:N) {
    vector[K] each = log_weights;
    for (k in 1:K) {
      each[k] += normal_lpdf(y[n] | mu[k], sigma[k]);
    }
    target += log_sum_exp(each);
  }
}
