// Compensation survey: an honest answer with probability one half, a coin flip otherwise; the coin is summed out.
data {
  int<lower=0> N;
  array[N] int<lower=0, upper=1> y;
}
parameters {
  real<lower=0, upper=1> theta; // uniform
}
model {
  for (n in 1:N) {
    target += log_mix(0.5, bernoulli_lpmf(y[n] | theta), bernoulli_lpmf(y[n] | 0.5));
  }
}
