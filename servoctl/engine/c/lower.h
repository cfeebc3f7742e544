/* X L^-T, shape (ROWS, N - FIRST), in column order, of the lower triangle L without its first rows and columns; the whole
   has shape (N, N). */
static void OPERATION(const V* L, const V* X, V* Y) {
  V y[N - FIRST][ROOM(ROWS)];
  for (int j = 0; j < N - FIRST; ++j) fill(y[j], X + j * ROWS, 1, ROWS);
  for (int i = 0; i < N - FIRST; ++i) {
    const V *row = L + FIRST * N + i + FIRST, inverse = number(1.0) / row[i * N];
    gather_rows(y[i], 0, row, N, y[0], i, ROWS);
    scale(y[i], inverse, y[i], ROWS);
  }
  for (int j = 0; j < N - FIRST; ++j) for (int r = 0; r < ROWS; ++r) Y[r + j * ROWS] = y[j][r];
}
