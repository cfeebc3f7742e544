/* L^-1, shape (N, N), in column order; L is a lower triangle of shape (N, N).

   Rows are found from the first to the last. Panel p holds 16 columns of all rows, so the zeros right of the diagonal
   cost nothing, and the sums of a row stay in registers. */
static void OPERATION(const V* L, V* Y) {
  V y[(N + 15) / 16][N][16];
  memset(y, 0, sizeof y);
  for (int i = 0; i < N; ++i) {
    const V inverse = number(1.0) / L[i + i * N];
    y[i / 16][i][i % 16] = number(1.0);
    for (int p = 0; p <= i / 16; ++p) {
      const int first = 16 * p;
      gather_rows(y[p][i], 0, L + i + first * N, N, y[p][first], i - first, 16);
      scale(y[p][i], inverse, y[p][i], 16);
    }
  }
  for (int j = 0; j < N; ++j) for (int i = 0; i < N; ++i) Y[i + j * N] = y[j / 16][i][j % 16];
}
