/* X L^-1, shape (ROWS, N), in column order; L is a lower triangle of shape (N, N).

   Columns are found from the last to the first, and stand in that order in y. */
static void OPERATION(const V* L, const V* X, V* Y) {
  V y[N][ROOM(ROWS)];
  for (int j = 0; j < N; ++j) fill(y[j], X + (N - 1 - j) * ROWS, 1, ROWS);
  for (int j = 0; j < N; ++j) {
    const V *column = L + (N - 1 - j) * N, inverse = number(1.0) / column[N - 1 - j];
    gather_rows(y[j], 0, column + N - 1, -1, y[0], j, ROWS);
    scale(y[j], inverse, y[j], ROWS);
  }
  for (int j = 0; j < N; ++j) for (int r = 0; r < ROWS; ++r) Y[r + j * ROWS] = y[N - 1 - j][r];
}
