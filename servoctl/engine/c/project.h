/* X (I - Z^T Z), shape (ROWS, N); Z has K rows; all are in column order. */
static void OPERATION(const V* Z, const V* X, V* Y) {
  V y[N][ROOM(ROWS)], along[K][ROOM(ROWS)];
  for (int j = 0; j < N; ++j) fill(y[j], X + j * ROWS, 1, ROWS);
  for (int l = 0; l < K; ++l) gather_rows(along[l], 1, Z + l, K, y[0], N, ROWS);
  for (int j = 0; j < N; ++j) gather_rows(y[j], 0, Z + j * K, 1, along[0], K, ROWS);
  for (int j = 0; j < N; ++j) for (int r = 0; r < ROWS; ++r) Y[r + j * ROWS] = y[j][r];
}
