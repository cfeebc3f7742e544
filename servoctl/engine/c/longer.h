/* The rows of A, shape (ROWS, N) in column order, that are longer than a limit; which they are; zeros for the others. */
static void OPERATION(const V* A, const V* limit, V* counted, V* B) {
  for (int i = 0; i < ROWS; ++i) counted[i] = number(0.0);
  for (int j = 0; j < N; ++j) for (int i = 0; i < ROWS; ++i) counted[i] += A[i + j * ROWS] * A[i + j * ROWS];
  for (int i = 0; i < ROWS; ++i) {
    const M longer = v_sqrt(counted[i]) > *limit;
    counted[i] = keep(longer, number(1.0));
    for (int j = 0; j < N; ++j) B[i + j * ROWS] = keep(longer, A[i + j * ROWS]);
  }
}
