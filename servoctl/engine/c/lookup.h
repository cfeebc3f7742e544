/* The row of a table at t, lane by lane. BREAKS: increasing, COUNT of them; ROWS: COUNT + 1 rows of WIDTH numbers. */
#ifndef LANES
#define LANES 1
#define LANE(v, k) (v)
typedef V Scalar;
#endif
static void OPERATION(const V* restrict x0, V* restrict y0) {
  int k, i;
  for (k = 0; k < LANES; ++k) {
    const Scalar t = LANE(x0[0], k);
    int row = 0, left = COUNT; /* row: breaks that are at or before t; left: breaks after these, not yet compared */
    while (left > 0) {
      const int half = (left + 1) / 2;
      row += BREAKS[row + half - 1] <= t ? half : 0;
      left -= half;
    }
    for (i = 0; i < WIDTH; ++i) LANE(y0[i], k) = ROWS[row * WIDTH + i];
  }
}
