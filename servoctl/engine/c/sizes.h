/* The sum of the absolute values in each column of A, shape (ROWS, N) in column order. */
static void OPERATION(const V* A, V* sums) {
  for (int j = 0; j < N; ++j) {
    V sum = number(0.0);
    for (int i = 0; i < ROWS; ++i) sum += v_fabs(A[i + j * ROWS]);
    sums[j] = sum;
  }
}
