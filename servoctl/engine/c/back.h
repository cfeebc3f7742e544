/* R^-1 y, shape (N); R is an upper triangle of shape (N, N), in column order. */
static void OPERATION(const V* R, const V* y, V* x) {
  V inverse[N];
  for (int j = 0; j < N; ++j) inverse[j] = number(1.0) / R[j + j * N];
  for (int i = 0; i < N; ++i) x[i] = y[i];
  for (int j = N - 1; j >= 0; --j) {
    const V* column = R + j * N;
    const V found = x[j] * inverse[j];
    for (int i = 0; i < j; ++i) x[i] -= found * column[i];
    x[j] = found;
  }
}
