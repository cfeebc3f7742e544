/* The decomposition of servoctl/engine/decomposition.py in loops: A, shape (ROWS, N), K = min(ROWS, N).

   A and all results are in column order; the arrays are laid out so that inner loops run over neighbours. If A has full
   row rank, C is triangular after its rows are put in the order of choice, so it needs no Gram-Schmidt: U is that
   permutation and R the triangle. Z and U then start with the last choice, which makes R upper triangular. */
#define ACROSS(i, count) for (int i = 0; i < count; ++i)

/* C = U R by Gram-Schmidt on the columns, orthogonalised twice; lanes in which `known` holds keep their U and R. */
static void COLUMNS(V C[K][ROWS], const M* live, M known, V* U, V* R) {
  V lying[ROWS][K], triangle[K * K], along[K];
  ACROSS(i, ROWS) ACROSS(l, K) lying[i][l] = number(0.0);
  ACROSS(l, K * K) triangle[l] = number(0.0);
  for (int j = 0; j < K; ++j) {
    V *column = C[j], total = number(0.0);
    for (int pass = 0; pass < 2 && j; ++pass) {
      ACROSS(l, K) along[l] = number(0.0);
      ACROSS(i, ROWS) ACROSS(l, K) along[l] += lying[i][l] * column[i];
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

static void DECOMPOSE(const V* A, const V* tolerance, V* Z, V* U, V* R, V* rank, V* pivot_min) {
  V rest[N][ROWS], basis[K][N], lying[N][K], C[K][ROWS], square[ROWS], along[ROWS], again[K], row[N];
  V least = *tolerance * *tolerance;
  M chosen[K][ROWS], live[K];
  ACROSS(c, N) ACROSS(i, ROWS) rest[c][i] = A[i + c * ROWS];
  ACROSS(c, N) ACROSS(l, K) lying[c][l] = number(0.0);
  *rank = *pivot_min = number(0.0);
  for (int j = 0; j < K; ++j) {
    V total = number(0.0);
    ACROSS(i, ROWS) square[i] = number(0.0);
    ACROSS(c, N) ACROSS(i, ROWS) square[i] += rest[c][i] * rest[c][i];
#if !defined(LANES) || LANES == 1
    int pick = 0;
    for (int i = 1; i < ROWS; ++i) if (square[i] > square[pick]) pick = i;
    ACROSS(i, ROWS) chosen[j][i] = i == pick;
    ACROSS(c, N) row[c] = rest[c][pick];
#else
    V largest = square[0];
    M taken = (M){0};
    for (int i = 1; i < ROWS; ++i) largest = v_fmax(largest, square[i]);
    ACROSS(i, ROWS) {
      chosen[j][i] = (square[i] >= largest) & invert(taken);
      taken = taken | chosen[j][i];
    }
    ACROSS(c, N) row[c] = keep(chosen[j][0], rest[c][0]);
    for (int i = 1; i < ROWS; ++i) ACROSS(c, N) row[c] = select(chosen[j][i], rest[c][i], row[c]);
#endif
    if (j) {
      ACROSS(l, K) again[l] = number(0.0);
      ACROSS(c, N) ACROSS(l, K) again[l] += lying[c][l] * row[c];
      for (int l = 0; l < j; ++l) {
        ACROSS(c, N) row[c] -= again[l] * basis[l][c];
        ACROSS(i, ROWS) C[l][i] += keep(chosen[j][i], again[l]);
      }
    }
    ACROSS(c, N) total += row[c] * row[c];
    live[j] = j ? (total > least) & live[j - 1] : total > least;
    V length = v_sqrt(select(live[j], total, number(1.0))), inverse = keep(live[j], number(1.0) / length);
    *rank += keep(live[j], number(1.0));
    *pivot_min = select(live[j], length, *pivot_min);
    ACROSS(c, N) lying[c][j] = basis[j][c] = row[c] * inverse;
    ACROSS(i, ROWS) along[i] = number(0.0);
    ACROSS(c, N) ACROSS(i, ROWS) along[i] += rest[c][i] * basis[j][c];
    ACROSS(i, ROWS) C[j][i] = along[i] = select(chosen[j][i], keep(live[j], length), along[i]);
    ACROSS(c, N) ACROSS(i, ROWS) rest[c][i] = keep(invert(chosen[j][i]), rest[c][i] - along[i] * basis[j][c]);
  }
  M full = ROWS > N ? (M){0} : live[K - 1];
  if (any(full)) {
    ACROSS(c, N) ACROSS(l, K) Z[l + c * K] = lying[c][K - 1 - l];
    ACROSS(l, K) ACROSS(i, ROWS) U[i + l * ROWS] = keep(chosen[K - 1 - l][i], number(1.0));
    ACROSS(l, K) ACROSS(m, K) {
      V entry = number(0.0);
      if (m >= l) ACROSS(i, ROWS) entry += keep(chosen[K - 1 - l][i], C[K - 1 - m][i]);
      R[l + m * K] = entry;
    }
  }
  if (any(invert(full))) {
    ACROSS(c, N) ACROSS(l, K) Z[l + c * K] = select(full, Z[l + c * K], lying[c][l]);
    COLUMNS(C, live, full, U, R);
  }
}
#undef ACROSS
#undef COLUMNS
#undef DECOMPOSE
#undef ROWS
#undef N
#undef K
