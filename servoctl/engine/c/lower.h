/* X L^-T, shape (ROWS, N), in column order; L is a lower triangle of shape (N, N). */
static void LOWER(const V* L, const V* X, V* Y) {
  V y[N][ROOM(ROWS)];
  for (int j = 0; j < N; ++j) fill(y[j], X + j * ROWS, 1, ROWS);
  for (int i = 0; i < N; ++i) {
    const V inverse = number(1.0) / L[i + i * N];
    gather_rows(y[i], 0, L + i, N, y[0], i, ROWS);
    scale(y[i], inverse, y[i], ROWS);
  }
  for (int j = 0; j < N; ++j) for (int r = 0; r < ROWS; ++r) Y[r + j * ROWS] = y[j][r];
}
#undef LOWER
#undef ROWS
#undef N
