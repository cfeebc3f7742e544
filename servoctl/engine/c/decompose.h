/* The decomposition of servoctl/engine/decomposition.py in loops: A, shape (ROWS, N), K = min(ROWS, N).

   A and all results are in column order. If A has full row rank, C is triangular after its rows are put in the order of
   choice, so it needs no Gram-Schmidt: U is that permutation and R the triangle. Z and U then start with the last
   choice, which makes R upper triangular. A single run puts its rows in order; runs side by side choose different rows,
   and mark them. If rows are MASKED, most of them may be zero: a single run leaves those out.

   What lies along a row is taken away by its square, not by the row of length 1, so that no row waits for a square root.
   A row is orthogonalised a second time where less than half of its length is left, and the square of what is left is
   summed anew where it has lost as much: else it loses the square of what is taken away. */
#define FEW_LEFT number(0.25)
#define SMALLEST (sizeof(V) == 4 ? 1e-30 : 1e-300) /* square of a pivot, so that its inverse is finite */
#define ACROSS(i, count) for (int i = 0; i < count; ++i)

/* C = U R by Gram-Schmidt on the columns, orthogonalised twice; lanes in which `known` holds keep their U and R. */
static void COLUMNS(V C[K][ROWS], int directions, const M* live, M known, V* U, V* R) {
  V lying[ROWS][K], triangle[K * K], along[K];
  ACROSS(i, ROWS) ACROSS(l, K) lying[i][l] = number(0.0);
  ACROSS(l, K * K) triangle[l] = number(0.0);
#if MASKED && !SIDE_BY_SIDE
  ACROSS(l, K) triangle[l + l * K] = number(1.0);
  ACROSS(i, ROWS * K) U[i] = select(known, U[i], number(0.0));
#else
  directions = K;
#endif
  for (int j = 0; j < directions; ++j) {
    V *column = C[j], total = number(0.0);
    for (int pass = 0; pass < 2 && j; ++pass) {
      ACROSS(l, K) along[l] = number(0.0);
#if MASKED && !SIDE_BY_SIDE
      ACROSS(i, ROWS) ACROSS(l, j) along[l] += lying[i][l] * column[i];
#else
      ACROSS(i, ROWS) ACROSS(l, K) along[l] += lying[i][l] * column[i];
#endif
      for (int l = 0; l < j; ++l) {
        ACROSS(i, ROWS) column[i] -= along[l] * C[l][i];
        triangle[l + j * K] += along[l];
      }
    }
    ACROSS(i, ROWS) total += column[i] * column[i];
    M counted = live[j] & (total > number(0.0));
    V length = v_sqrt(select(counted, total, number(1.0))), inverse = keep(counted, number(1.0) / length);
    triangle[j + j * K] = length;
    ACROSS(i, ROWS) lying[i][j] = column[i] *= inverse;
    ACROSS(i, ROWS) U[i + j * ROWS] = select(known, U[i + j * ROWS], column[i]);
  }
  ACROSS(l, K * K) R[l] = select(known, R[l], triangle[l]);
}

static void OPERATION(const V* A, const V* tolerance, V* Z, V* U, V* R, V* rank, V* pivot_min) {
  V rest[ROWS][ROOM(N)], basis[K][ROOM(N)], C[K][ROWS], again[K];
  V whole[ROWS], square[ROWS], exact[ROWS]; /* squares of the rows, of what is left of them, and when last summed */
  const V square_limit = *tolerance * *tolerance, smallest = number(SMALLEST);
  const V least = select(square_limit > smallest, square_limit, smallest);
  M live[K];
#if SIDE_BY_SIDE
  M chosen[K][ROWS];
  V row[ROOM(N)];
#else
  int order[ROWS], rows = ROWS; /* the rows chosen so far, then all others from the first to the last */
  ACROSS(i, ROWS) order[i] = i;
#endif
  ACROSS(i, ROWS) fill(rest[i], A + i, ROWS, N);
  ACROSS(l, K) again[l] = number(0.0);
  ACROSS(i, ROWS) whole[i] = square[i] = exact[i] = dot(rest[i], rest[i], N);
  *rank = *pivot_min = number(0.0);
  int directions = K;
#if MASKED && !SIDE_BY_SIDE
  rows = 0;
  ACROSS(i, ROWS) if (any(square[i] > number(0.0))) order[rows++] = i;
  ACROSS(j, K) live[j] = (M){0};
  memset(basis, 0, sizeof basis);
  memset(C, 0, sizeof C);
  directions = rows < K ? rows : K;
#endif
  for (int j = 0; j < directions; ++j) {
#if SIDE_BY_SIDE
    V largest = square[0], before = number(0.0);
    M taken = (M){0};
    for (int i = 1; i < ROWS; ++i) largest = v_fmax(largest, square[i]);
    ACROSS(i, ROWS) {
      chosen[j][i] = (square[i] >= largest) & invert(taken);
      taken = taken | chosen[j][i];
      before = select(chosen[j][i], whole[i], before);
      ACROSS(c, N) row[c] = i ? select(chosen[j][i], rest[i][c], row[c]) : rest[0][c];
    }
#else
    int at = j;
    for (int i = j + 1; i < rows; ++i) if (square[order[i]] > square[order[at]]) at = i;
    const int pick = order[at];
    for (int i = j, next = pick; i <= at; ++i) { /* the rows before it move up; written so that gcc calls no memmove */
      const int one = order[i];
      order[i] = next;
      next = one;
    }
    V* row = rest[pick];
    const V largest = square[pick], before = whole[pick];
#endif
    const M lost = largest < FEW_LEFT * before;
    if (any(lost)) {
      ACROSS(l, j) again[l] = keep(lost, dot(basis[l], row, N));
      gather_rows(row, 0, again, 1, basis[0], j, N);
    }
    const V total = dot(row, row, N);
    live[j] = j ? (total > least) & live[j - 1] : total > least;
    const V counted = select(live[j], total, number(1.0)), length = v_sqrt(counted);
    const V inverse = keep(live[j], number(1.0) / length), squared = keep(live[j], number(1.0) / counted);
    *rank += keep(live[j], number(1.0));
    *pivot_min = select(live[j], length, *pivot_min);
    scale(basis[j], inverse, row, N);
#if SIDE_BY_SIDE
    if (any(lost)) ACROSS(l, j) ACROSS(i, ROWS) C[l][i] += keep(chosen[j][i], again[l]);
    ACROSS(i, ROWS) {
      const V along = dot(rest[i], row, N), share = along * squared;
      C[j][i] = select(chosen[j][i], keep(live[j], length), along * inverse);
      reduce(rest[i], share, row, N);
      ACROSS(c, N) rest[i][c] = keep(invert(chosen[j][i]), rest[i][c]);
      square[i] = keep(invert(chosen[j][i]), square[i] - along * share);
      const M few = square[i] < FEW_LEFT * exact[i];
      if (any(few)) {
        const V anew = dot(rest[i], rest[i], N);
        square[i] = select(few, anew, square[i]);
        exact[i] = select(few, anew, exact[i]);
      }
    }
#else
    if (lost) ACROSS(l, j) C[l][pick] += again[l];
    C[j][pick] = keep(live[j], length);
    for (int i = j + 1; i < rows; ++i) {
      V* other = rest[order[i]];
      const V along = dot(other, row, N);
      C[j][order[i]] = along * inverse;
      if (j + 1 == K) continue;
      const V share = along * squared;
      reduce(other, share, row, N);
      square[order[i]] -= along * share;
      if (square[order[i]] < FEW_LEFT * exact[order[i]]) square[order[i]] = exact[order[i]] = dot(other, other, N);
    }
#endif
  }
  const M full = ROWS > N ? (M){0} : live[K - 1];
  if (any(full)) {
    ACROSS(c, N) ACROSS(l, K) Z[l + c * K] = basis[K - 1 - l][c];
#if SIDE_BY_SIDE
    ACROSS(l, K) ACROSS(i, ROWS) U[i + l * ROWS] = keep(chosen[K - 1 - l][i], number(1.0));
    ACROSS(l, K) ACROSS(m, K) {
      V entry = number(0.0);
      if (m >= l) ACROSS(i, ROWS) entry += keep(chosen[K - 1 - l][i], C[K - 1 - m][i]);
      R[l + m * K] = entry;
    }
#else
    ACROSS(i, ROWS * K) U[i] = number(0.0);
    ACROSS(i, K * K) R[i] = number(0.0);
    ACROSS(l, K) U[order[K - 1 - l] + l * ROWS] = number(1.0);
    ACROSS(l, K) for (int m = l; m < K; ++m) R[l + m * K] = C[K - 1 - m][order[K - 1 - l]];
#endif
  }
  if (any(invert(full))) {
    ACROSS(c, N) ACROSS(l, K) Z[l + c * K] = select(full, Z[l + c * K], basis[l][c]);
#if !SIDE_BY_SIDE && !MASKED
    ACROSS(j, K) ACROSS(i, j) C[j][order[i]] = number(0.0);
#endif
    COLUMNS(C, directions, live, full, U, R);
  }
}
