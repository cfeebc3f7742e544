/* A B, shape (ROWS, COLUMNS), or A B^T if TRANSPOSED; A has N columns; all are in column order. */
static void OPERATION(const V* A, const V* B, V* Y) {
  V a[N][ROOM(ROWS)], y[ROOM(ROWS)];
  for (int j = 0; j < N; ++j) fill(a[j], A + j * ROWS, 1, ROWS);
  for (int c = 0; c < COLUMNS; ++c) {
    gather_rows(y, 1, B + (TRANSPOSED ? c : c * N), TRANSPOSED ? COLUMNS : 1, a[0], N, ROWS);
    for (int r = 0; r < ROWS; ++r) Y[r + c * ROWS] = y[r];
  }
}
