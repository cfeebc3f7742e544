/* The lower triangle L of M = L L^T, shape (N, N), in column order; M is a triangle without the zeros above it.

   First come the columns of L times its diagonal, so that no pivot waits for the square root of another. */
static void OPERATION(const V* lower, V* L, V* positive) {
  V columns[N][ROOM(N)], inverse[N], pivot[N];
  M fine = number(0.0) == number(0.0);
  memset(columns, 0, sizeof columns);
  for (int j = 0; j < N; ++j) for (int i = j; i < N; ++i) columns[j][i] = *lower++;
  for (int j = 0; j < N; ++j) {
    const M counts = columns[j][j] > number(0.0);
    fine = fine & counts;
    pivot[j] = select(counts, columns[j][j], number(1.0));
    inverse[j] = number(1.0) / pivot[j];
    for (int k = j + 1; k < N; ++k) {
      const int from = LEVEL(k);
      reduce(columns[k] + from, columns[j][k] * inverse[j], columns[j] + from, N - from);
    }
  }
  for (int j = 0; j < N; ++j) {
    const V root = v_sqrt(pivot[j]), factor = root * inverse[j];
    for (int i = 0; i < j; ++i) L[i + j * N] = number(0.0);
    L[j + j * N] = root;
    for (int i = j + 1; i < N; ++i) L[i + j * N] = columns[j][i] * factor;
  }
  *positive = keep(fine, number(1.0));
}
