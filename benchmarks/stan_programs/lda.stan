// LDA: the topic of each word is summed out; words of a document are counted.
data {
  int D;
  int K;
  int V;
  matrix[D, V] counts;
  array[K] vector[V] prior;
}
parameters {
  array[D] simplex[K] theta;
  array[K] simplex[V] phi;
}
model {
  matrix[D, K] shares;
  matrix[K, V] words;
  for (k in 1:K) {
    phi[k] ~ dirichlet(prior[k]);
    words[k] = phi[k]';
  }
  for (d in 1:D) {
    shares[d] = theta[d]';
  }
  target += sum(counts .* log(shares * words));
}
