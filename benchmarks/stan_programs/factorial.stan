// Factorial HMM: the joint states of all chains are summed out; every chain is off before the first step.
data {
  int C;
  int S; // joint states
  int T;
  vector[T] y;
  matrix[S, C] states;
  vector[C] weight_mean;
}
parameters {
  vector[C] weights;
  vector<lower=0, upper=1>[C] stay;
  real<lower=0> sigma;
}
model {
  matrix[S, S] transition;
  matrix[S, T] emission;
  vector[S] means = states * weights;
  weights ~ normal(weight_mean, 0.3);
  stay ~ beta(18, 2);
  sigma ~ lognormal(-0.7, 0.5);
  for (from in 1:S) {
    for (to in 1:S) {
      real p = 1;
      for (c in 1:C) {
        p *= states[from, c] == states[to, c] ? stay[c] : 1 - stay[c];
      }
      transition[from, to] = p;
    }
  }
  for (t in 1:T) {
    for (s in 1:S) {
      emission[s, t] = normal_lpdf(y[t] | means[s], sigma);
    }
  }
  target += hmm_marginal(emission, transition, transition[1]');
}
