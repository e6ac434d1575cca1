// Coal: the year of the change is summed out; missing counts sum to one. Sums over known years before each change.
data {
  int T;
  int N;
  int total;
  vector[T] before; // known years before a change
  vector[T] disasters; // and disasters in them
}
parameters {
  real<lower=0> early;
  real<lower=0> late;
}
model {
  early ~ exponential(1);
  late ~ exponential(1);
  target += log_sum_exp(disasters * log(early) - before * early
                        + (total - disasters) * log(late) - (N - before) * late);
}
