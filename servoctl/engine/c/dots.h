/* A^T b, shape (COLUMNS); A has N rows and is in column order. A sum has four parts, as in rows.h. */
static void OPERATION(const V* A, const V* b, V* y) {
  for (int c = 0; c < COLUMNS; ++c) {
    const V* a = A + c * N;
    V part[4] = {number(0.0), number(0.0), number(0.0), number(0.0)};
    for (int i = 0; i + 4 <= N; i += 4) for (int k = 0; k < 4; ++k) part[k] += a[i + k] * b[i + k];
    for (int k = 0; k < N % 4; ++k) part[k] += a[N / 4 * 4 + k] * b[N / 4 * 4 + k];
    y[c] = (part[0] + part[2]) + (part[1] + part[3]);
  }
}
